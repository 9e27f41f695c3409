"""``tacit figure``: from a clone only."""

from __future__ import annotations

import importlib

from tests.cli.calls import call, one_line


def test_figures_by_name(monkeypatch, tmp_path):
    from research import counter_errors
    from research.figure_names import FIGURES

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
