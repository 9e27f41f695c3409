"""``tacit figure``: from a clone only."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from research.figure_names import FIGURES, QUICK
from tacit.cli import figure
from tests.cli.calls import call, one_line


def test_figures_by_name(monkeypatch, tmp_path):
    from research import counter_errors, running_count, tabular_orders

    assert call("figure", "--list").stdout.split() == list(FIGURES)
    one_line(call("figure", "nonsense"))
    one_line(call("figure"))
    for module in FIGURES.values():
        assert callable(importlib.import_module(module).main)
    asked = []
    monkeypatch.setattr(counter_errors, "main", lambda arguments: asked.append(arguments) or 0)
    path = str(tmp_path / "c.png")
    assert call("figure", "counter-errors", "--output", path).exit_code == 0
    assert asked == [[f"--output={path}"]]
    monkeypatch.setattr(tabular_orders, "main", lambda arguments: asked.append(arguments) or 0)
    monkeypatch.setattr(running_count, "main", lambda arguments: asked.append(arguments) or 0)
    for name in ("tabular-orders", "running-count"):
        assert call("figure", name, "--output", path, "--quick").exit_code == 0
    assert asked[1:] == [[f"--output={path}", "--quick"], [f"--output={path}", *QUICK[name]]]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_knows_its_quick_form(name, tmp_path, capsys):
    """The arguments exist: only that there is no folder for the picture is wrong with them."""
    main = importlib.import_module(FIGURES[name]).main
    with pytest.raises(SystemExit, match="2"):
        main([*QUICK.get(name, ("--quick",)), "--output=missing/x.png"])
    assert "--output" in capsys.readouterr().err


def test_figures_are_found_from_any_folder(tmp_path):
    """The clone is known from where the package lies, not from where it is called."""
    made = subprocess.run(
        [sys.executable, "-m", "tacit.cli.app", "figure", "--list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.split() == list(FIGURES)


def test_what_a_figure_lacks_is_not_blamed_on_the_clone(monkeypatch):
    """Only a missing laboratory is; not a library that is missing in it."""

    def missing(name):
        raise ModuleNotFoundError("No module named 'colours'", name="colours")

    monkeypatch.setattr(figure, "import_module", missing)
    assert "No module named 'colours'" in one_line(call("figure", "--list"), code=1)
