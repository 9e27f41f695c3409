"""What lines and bands of plots are, and where they go."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tacit.privacy.budget import Guarantee, Relation
from tacit.privacy.errors import InvalidArgument
from tacit.simulation import plots
from tacit.simulation.result import Result


def made(world, seed, best=1.0):
    values = [0.0, 0.2 * best, best * (0.5 + 0.1 * seed)]
    return Result(
        agent="mine",
        world=world,
        privacy="none",
        seed=seed,
        served=[0, 10, 100],
        values=values,
        greedy_values=values,
        optimal_value=best,
        baseline_value=0.0,
        reference_value=0.0,
        guarantee=None,
    )


def test_lines_are_medians_and_bands_deciles():
    figure = plots.plot_results({"a": [made("one", seed) for seed in range(11)]})
    right = figure.axes[1]
    (line,) = [one for one in right.lines if len(one.get_ydata()) > 2]
    assert figure.axes[0].get_ylabel() == "cumulative regret"
    # The second release serves from user 11 on: all have the same value there.
    assert np.unique(line.get_ydata()) == pytest.approx([0.0, 0.2])
    band = right.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((0.0, 0.2))


def promised(run: Result, agent: str, epsilon: float) -> Result:
    told = {"model": "joint", "delta": 0.0, "mu": None, "relation": Relation.REPLACE_ONE}
    promise = Guarantee(**told, epsilon=epsilon, releases=2, mechanism="Laplace noise")
    return replace(run, agent=agent, guarantee=promise)


def test_colours_are_agents_dashes_budgets_and_panels_worlds(tmp_path):
    lines = {
        f"{agent}, {epsilon}": [
            promised(made(world, seed, best), agent, epsilon)
            for world, best in (("one:states=3", 1.0), ("two", 5.0))
            for seed in range(3)
        ]
        for agent in ("mine", "yours", "ours")
        for epsilon in (0.1, 1, 10)
    }
    figure = plots.plot_results(lines, tmp_path / "a.pdf", draw="values", width="page", height=2.0)
    written = (tmp_path / "a.pdf").read_bytes()
    assert b"/CIDFontType2" in written, "Type 42"
    assert b"/Type3" not in written
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["one: states=3", "two"]
    drawn = [one for one in figure.axes[0].lines if one.get_color() != plots.PALE]
    assert len({one.get_color() for one in drawn}) == 3
    assert len({str(one._unscaled_dash_pattern) for one in drawn}) == 3
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [*("mine", "yours", "ours", "ε = 0.1", "ε = 1", "ε = 10"), *legend[6:]]
    assert figure.get_figwidth() == 7.0
    figure.draw_without_rendering()
    boxes = [one.get_window_extent() for one in figure.legends[0].get_texts()]
    boxes += [axes.title.get_window_extent() for axes in figure.axes]
    assert not any(one.overlaps(two) for one, two in itertools.combinations(boxes, 2))
    assert not plots.plot_results(lines, legend=False).legends
    with pytest.raises(InvalidArgument, match="width must be"):
        plots.plot_results(lines, width="poster")
    for wrong in ({}, {"a": []}):
        with pytest.raises(InvalidArgument, match="results"):
            plots.plot_results(wrong)
