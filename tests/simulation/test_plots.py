"""What lines and bands of plots are, and where they go."""

from __future__ import annotations

import numpy as np
import pytest

import tacit
from tacit.simulation import plots
from tacit.simulation.result import Result
from tacit.simulation.tables import bootstrap_interval, interquartile_mean


def made(world: str, seed: int, best: float = 1.0) -> Result:
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


def test_intervals_are_those_of_tables():
    rows = np.random.default_rng(1).normal(size=(7, 3))
    low, middle, high = plots._summary(rows, "interval")
    for column in range(3):
        assert middle[column] == pytest.approx(interquartile_mean(rows[:, column]))
        ends = bootstrap_interval(rows[:, column])
        assert low[column] == pytest.approx(ends[0], abs=0.15)
        assert high[column] == pytest.approx(ends[1], abs=0.15)
        assert low[column] < middle[column] < high[column]
    assert plots._summary(rows, "deciles")[1] == pytest.approx(np.median(rows, axis=0))


def test_worlds_have_rows_of_their_own_with_their_own_units():
    lines = {"a": [made("one", s) for s in range(3)] + [made("two", s, 5.0) for s in range(3)]}
    figure = plots.plot_results(lines, by_world=True, band="interval")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert len(titles) == 4
    assert [title for title in titles if "Regret" in title] == ["one: Regret", "two: Regret"]
    assert any("middle half of 3 runs" in text.get_text() for text in figure.texts)
    together = plots.plot_results(lines)
    assert len(together.axes) == 2
    assert together.axes[0].get_title(loc="left") == "Regret, in optimal returns"


def test_an_unknown_band_is_refused():
    with pytest.raises(tacit.InvalidArgument, match="deciles, interval"):
        plots.plot_results({"a": [made("one", 0)]}, band="sigma")
