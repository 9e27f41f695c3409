"""Mutated and hand-made files on everything that reads files, each with 200 MB and two seconds.

``python -m research.hostile.loaders --files 100000`` reads them in processes of their own, where
the system enforces both limits: what takes more ends its process, and counts as broken. So does
whatever is raised but an error of ours, a ``ValueError`` of the loader that needs NumPy alone, or
an ``OSError``.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from research.hostile.files import FileCase, file_cases, written
from research.hostile.fuzzing import Tally
from research.hostile.hand_made import hand_made
from research.hostile.mutation import mutated
from research.study import Parser, whole

MEMORY = 200_000_000
"""What reading a file may take, in bytes."""

SECONDS = 2.0
"""What it may take of a processor; of a clock, ten times as much, as the machine is shared."""

_USED = Path("/proc/self/statm")


def campaign(files: int, seed: int, made: bool = False, only: str = "") -> Tally:
    """Reads so many mutated files, or all that were made by hand."""
    total, start = Tally("made by hand" if made else "mutated files"), 0
    with tempfile.TemporaryDirectory() as folder:
        while start < files:
            command = [sys.executable, "-m", "research.hostile.loaders", "--work", folder]
            command += ["--files", str(files), "--seed", str(seed), "--start", str(start)]
            command += ["--only", only] + (["--made"] if made else [])
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            for line in done.stdout.splitlines():
                total.broken.append(line)
            reached, refused = (
                int(word) for word in (Path(folder) / "reached").read_text().split()
            )
            if done.returncode:
                why = done.stderr.strip().splitlines()[-1:] or ["no word"]
                total.broken.append(
                    f"file {reached}: ended the process ({done.returncode}, {why[0]})"
                )
                reached += 1
            total.refused += refused
            total.tried += reached - start
            start = reached if reached > start else files
    total.accepted = total.tried - total.refused - len(total.broken)
    return total


@cache
def made_files() -> list[tuple[FileCase, str]]:
    """Every file that was made by hand, and who reads it."""
    return [(case, name) for case in file_cases() for name in hand_made(case.name, case.suffix)]


@dataclass(frozen=True)
class Reading:
    """A file that is to be read: who does, and what puts it into a folder."""

    case: FileCase
    name: str
    put: Callable[[Path], Path]

    def attempt(self, folder: Path) -> str | None:
        """Whether it was refused, as the reason; ``None`` if it was read."""
        path = self.put(folder)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.case.read(path)
        except self.case.typed as refusal:
            error: BaseException | None = refusal
            while error is not None:
                if isinstance(error, MemoryError):
                    raise MemoryError("takes more than it may") from refusal
                error = error.__cause__ or error.__context__
            return str(refusal)
        finally:
            for left in folder.iterdir():
                if left.is_symlink() or not left.is_dir():
                    left.unlink()
        return None


def mutation(index: int, seed: int, cases: Sequence[FileCase]) -> Reading:
    """The mutated file of this number."""
    case = cases[index % len(cases)]
    others = [written(other) for other in cases if other is not case] or [b"0"]
    data = mutated(written(case), others, case.forge, np.random.default_rng([seed, index]))

    def put(folder: Path) -> Path:
        path = folder / f"file{case.suffix}"
        path.write_bytes(data)
        return path

    return Reading(case, f"mutated file {index} of seed {seed}", put)


def made(index: int) -> Reading:
    """The hand-made file of this number."""
    case, name = made_files()[index]
    return Reading(case, name, hand_made(case.name, case.suffix)[name])


def _work(options: object, folder: Path) -> None:
    """Reads files one after the other; the system ends this process at one that takes too much."""
    start, files, seed = (getattr(options, name) for name in ("start", "files", "seed"))
    cases = [case for case in file_cases() if getattr(options, "only") in case.name]  # noqa: B009
    for case in cases:  # what is compiled or imported when it is first needed
        path = folder / f"whole{case.suffix}"
        path.write_bytes(written(case))
        case.read(path)
    reached, refused = os.open(folder / "reached", os.O_RDWR | os.O_CREAT), 0
    inner = folder / "inner"
    inner.mkdir(exist_ok=True)
    os.chdir(inner)
    for index in range(start, files):
        os.pwrite(reached, b"%20d %20d" % (index, refused), 0)
        reading = made(index) if getattr(options, "made") else mutation(index, seed, cases)  # noqa: B009
        _limit(SECONDS)
        try:
            refused += reading.attempt(inner) is not None
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            sys.stdout.write(
                f"{reading.case.name}: {reading.name}: {type(error).__name__}: {text}\n"
            )
            sys.stdout.flush()
        finally:
            _limit(0.0)
    os.pwrite(reached, b"%20d %20d" % (files, refused), 0)


def _limit(seconds: float) -> None:
    """So much time and memory from now on, or as much as there is."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    now = int(_USED.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY if seconds else hard, hard))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = Parser("research.hostile.loaders", __doc__)
    parser.add_argument("--files", type=whole(1), default=10_000, help="mutated ones, in all")
    parser.add_argument("--seed", type=whole(0), default=0, help="of the mutations")
    parser.add_argument("--only", default="", help="loaders whose names hold this")
    parser.add_argument("--made", action="store_true", help="those made by hand")
    parser.add_argument("--start", type=whole(0), default=0, help="at which number a worker starts")
    parser.add_argument("--work", default="", help="the folder of a worker")
    options = parser.parse_args(arguments)
    if options.work:
        _work(options, Path(options.work))
        return 0
    files = len(made_files()) if options.made else options.files
    tally = campaign(files, options.seed, options.made, options.only)
    print(tally)
    for found in tally.broken[:50]:
        print(f"    {found}")
    return 1 if tally.broken else 0


if __name__ == "__main__":
    sys.exit(main())
