"""Writes deploy/requirements.txt: what the service needs, by version and hash.

Run it with CPython 3.11 on Linux x86-64, the platform of deploy/Containerfile, after a change of
constraints.txt or pyproject.toml. Nothing is installed.

    python deploy/lock.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXTRAS = "serve,encrypt"
LEFT_OUT = ("gymnasium", "matplotlib")  # pictures and environments of a laboratory; no server draws
BUILD = "setuptools"  # builds the wheel of Tacit itself, offline
HEAD = """\
# Written by deploy/lock.py from constraints.txt: the service, for CPython 3.11 on Linux x86-64.
# Without Matplotlib and Gymnasium, which tacit itself is installed beside with --no-deps.
# pip install --require-hashes -r deploy/requirements.txt
"""


def resolved() -> list[dict[str, Any]]:
    """Packages that pip would install, with the files it would take."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--report", "-", "-c", str(ROOT / "constraints.txt"), f"{ROOT}[{EXTRAS}]", BUILD]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    found: list[dict[str, Any]] = json.loads(done.stdout)["install"]
    return found


def plain(name: str) -> str:
    """A package's name as all write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(packages: list[dict[str, Any]]) -> set[str]:
    """Names of all that a server needs: what is needed by what is not left out."""
    asks = {
        plain(package["metadata"]["name"]): {
            plain(re.split(r"[^\w.-]", text)[0])
            for text in package["metadata"].get("requires_dist", [])
        }
        for package in packages
    }
    found, new = set[str](), {"tacit", BUILD}
    while new:
        found |= new
        new = {name for each in new for name in asks[each]} & set(asks) - found - {*LEFT_OUT}
    return found


def main() -> None:
    """Writes the file."""
    lines, packages = [], resolved()
    wanted = needed(packages)
    for package in packages:
        about, source = package["metadata"], package["download_info"]
        if about["name"] == "tacit" or plain(about["name"]) not in wanted:
            continue
        digest = source["archive_info"]["hashes"]["sha256"]
        lines.append(f"{about['name'].lower()}=={about['version']} --hash=sha256:{digest}")
    (ROOT / "deploy" / "requirements.txt").write_text(HEAD + "\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    main()
