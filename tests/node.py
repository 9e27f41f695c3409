"""Programs of ``clients/js`` under Node; a test is skipped where there is none, and says so."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

JS = Path(__file__).parents[1] / "clients" / "js"


def node(*words, given=None):
    """What a program prints, as JSON; its first word is a file of ours, or an option of Node."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("there is no node: the clients in JavaScript were NOT tested")
    first, *rest = words
    command = [program, first if first.startswith("-") else JS / first, *rest]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
