"""Which privacy bugs that outsiders wrote as patches the audit finds, and which our tests find.

``python -m research.patch_table`` applies every patch of ``research/patches`` to a copy of the
project, one by one, audits the agents that it names there, and prints a line for each. With
``--tests`` the tests that it names run as well where audits found nothing. A patch that no longer
applies counts as not found: write it again, for the code as it is.

Lines before the first file of a patch say ``What:``, ``Gain:``, ``Audit:`` (arguments of ``tacit
audit``; several such lines are several audits) and ``Tests:`` (arguments of pytest).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from research.study import Parser, load, store, whole

ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "research" / "patches"
_COPIED = ("src", "tests", "research", "docs", "examples", "benchmarks", "pyproject.toml")
_BUDGET = ("--epsilon", "1", "--delta", "1e-6")
_SECONDS = 900


class Patch(NamedTuple):
    """One patch and what its first lines say."""

    path: Path
    what: str
    gain: str
    audits: tuple[str, ...]
    tests: str

    @property
    def name(self) -> str:
        """Of its set and file."""
        return f"{self.path.parent.name}/{self.path.stem}"

    @classmethod
    def read(cls, path: Path) -> Patch:
        """A patch from its file."""
        said: dict[str, list[str]] = {}
        for line in path.read_text(encoding="utf-8").split("\n--- ")[0].splitlines():
            key, _, value = line.partition(": ")
            said.setdefault(key, []).append(value.strip())
        one = {key: " ".join(values) for key, values in said.items()}
        return cls(
            path, one["What"], one["Gain"], tuple(said.get("Audit", ())), one.get("Tests", "")
        )


def patches(only: Sequence[str] = ()) -> list[Patch]:
    """All patches, or those whose names begin so."""
    found = [Patch.read(path) for path in sorted(PATCHES.glob("*/*.patch"))]
    return [p for p in found if not only or p.name.startswith(tuple(only))]


def found_by(patch: Patch | None, tests: bool = False, full: bool = False) -> str:
    """What finds a patch: ``"audit: ..."``, ``"tests"``, or nothing; ``"stale"`` if it fails.

    Args:
        patch: which; ``None`` for the code without one, which nothing should find.
        tests: whether to run its tests where no audit finds it.
        full: whether audits are full ones.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in _COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder) / name)
        if patch and _run(folder, ["git", "apply", str(patch.path)]).returncode:
            return "stale"
        for asked in patch.audits if patch else ("ucbvi --world riverswim:states=3,horizon=4",):
            budget = () if "--epsilon" in asked else _BUDGET
            command = ["-c", "from tacit.cli.app import main; main()", "audit", *asked.split()]
            quick = () if full else ("--quick",)
            audit = _run(folder, [sys.executable, *command, *budget, *quick])
            if audit.returncode:
                lines = [at for at in audit.stdout.splitlines() if "Wrong" in at]
                return f"audit: {' '.join([*lines, audit.stderr.strip()[-200:]])[:200]}"
        if tests and patch and patch.tests:
            command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *patch.tests.split()]
            if _run(folder, [sys.executable, *command]).returncode:
                return "tests"
    return ""


def _run(folder: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    where = os.environ | {"PYTHONPATH": f"{folder}/src:{folder}", "COLUMNS": "1000"}
    told = {"cwd": folder, "env": where, "capture_output": True, "text": True}
    try:
        return subprocess.run(command, timeout=_SECONDS, check=False, **told)  # type: ignore[call-overload,no-any-return]
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "Wrong: it never ended", "")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns how many patches were not found."""
    parser = Parser("research.patch_table", __doc__)
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="sets or patches")
    parser.add_argument("--tests", action="store_true", help="run tests where audits find nothing")
    parser.add_argument("--full", action="store_true", help="full audits, not quick ones")
    parser.add_argument("--jobs", type=whole(1), default=1, help="at once")
    parser.add_argument("--store", action="store_true", help="keep results for the page")
    chosen = parser.parse_args(arguments)
    tried, missed = patches(chosen.only), 0
    with ThreadPoolExecutor(chosen.jobs) as pool:
        results = pool.map(lambda p: found_by(p, chosen.tests, chosen.full), tried)
        for patch, by in zip(tried, results, strict=True):
            missed += by in ("", "stale")
            print(f"{patch.name}: {by or 'NOT FOUND'}", flush=True)
            if chosen.store:
                row = {"what": patch.what, "gain": patch.gain, "by": by.partition(":")[0]}
                store("patches", load("patches") | {patch.name: row})
    print(f"{len(tried) - missed} of {len(tried)} patches found.")
    return missed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
