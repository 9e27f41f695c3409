"""Runs the notebooks of the docs. ``python -m tests.notebooks`` writes their outputs down anew.

What notebooks keep of an output is text: counts of executions and warnings are not kept, and the
picture of a notebook is ``docs/img/NAME.png``, which the site shows below its cell.
"""

import base64
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NAMES = ("first-agent", "your-own-data", "compare-algorithms", "audit-a-claim")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def read(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def run(name, folder):
    """The notebook with what its cells print now, in a process of its own."""
    notebook = read(name)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs = []
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=1200, kernel_name="python3", resources=where).execute()
    return notebook


def texts(notebook):
    """What each cell of code prints, as it is kept."""
    return ["".join(map(_text, cell.outputs)) for cell in notebook.cells if "outputs" in cell]


def _text(output):
    if output.output_type == "stream":
        return str(output.text) if output.name == "stdout" else ""
    data = output.get("data", {})
    return "" if "image/png" in data else _ADDRESS.sub("", data.get("text/plain", "")) + "\n"


def pictures(notebook):
    """The pictures that it shows."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [output.get("data", {}).get("image/png") for output in outputs]
    return [base64.b64decode(picture) for picture in shown if picture is not None]


def main(names):
    """Writes outputs down."""
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            notebook = run(name, Path(folder))
        for picture in pictures(notebook):
            (FOLDER.parent / "img" / f"{name}.png").write_bytes(picture)
        for cell, text in zip(
            [cell for cell in notebook.cells if "outputs" in cell], texts(notebook), strict=True
        ):
            cell.metadata, cell.execution_count = {}, None
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)] * bool(text)
        notebook.metadata.pop("language_info", None)
        notebook.metadata["language_info"] = {"name": "python"}
        nbformat.write(notebook, FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main(sys.argv[1:])
