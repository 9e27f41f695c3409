"""The notebooks of the docs run, and print what they say."""

import re

import pytest

from tests import notebooks


def test_all_are_there():
    found = sorted(path.stem for path in notebooks.FOLDER.glob("*.ipynb"))
    assert found == sorted(notebooks.NAMES)


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_notebook_says_what_its_reader_can_do_and_holds_text_alone(name):
    first, *cells = notebooks.read(name).cells
    title, line = first.source.split("\n\n")[:2]
    assert title.startswith("# ")
    assert re.fullmatch(r"\*After this notebook you can [^*\n]+\.\*", line)
    for cell in cells:
        assert cell.metadata == {}
        for link in (
            re.findall(r"\]\(([^)#]+)", cell.source) if cell.cell_type == "markdown" else []
        ):
            assert (notebooks.FOLDER / link).is_file()
        if cell.cell_type == "code":
            assert cell.execution_count is None
            assert {output.output_type for output in cell.outputs} <= {"stream"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if place == 0 else [pytest.mark.slow])
        for place, name in enumerate(notebooks.NAMES)
    ],
)
def test_a_notebook_prints_what_it_says(name, tmp_path):
    made = notebooks.run(name, tmp_path)
    assert notebooks.texts(made) == notebooks.texts(notebooks.read(name))
    # The site has the picture of a notebook, one of each at most.
    shown = len(notebooks.pictures(made))
    assert shown == (notebooks.FOLDER.parent / "img" / f"{name}.png").exists()
