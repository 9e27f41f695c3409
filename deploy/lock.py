"""Writes deploy/requirements.txt: what the service needs, by version and hash.

Run it with CPython 3.11 on Linux x86-64, the platform of deploy/Containerfile, after a change of
constraints.txt or pyproject.toml. Nothing is installed.

    python deploy/lock.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXTRAS = "serve,encrypt"
BUILD = "setuptools"  # builds the wheel of Tacit itself, offline
HEAD = """\
# Written by deploy/lock.py from constraints.txt: the service, for CPython 3.11 on Linux x86-64.
# pip install --require-hashes -r deploy/requirements.txt
"""


def resolved() -> list[dict[str, Any]]:
    """Packages that pip would install, with the files it would take."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--report", "-", "-c", str(ROOT / "constraints.txt"), f"{ROOT}[{EXTRAS}]", BUILD]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    found: list[dict[str, Any]] = json.loads(done.stdout)["install"]
    return found


def main() -> None:
    """Writes the file."""
    lines = []
    for package in resolved():
        about, source = package["metadata"], package["download_info"]
        if about["name"] == "tacit":
            continue
        digest = source["archive_info"]["hashes"]["sha256"]
        lines.append(f"{about['name'].lower()}=={about['version']} --hash=sha256:{digest}")
    (ROOT / "deploy" / "requirements.txt").write_text(HEAD + "\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    main()
