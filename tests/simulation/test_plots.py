"""What lines and bands of plots are, and where they go."""

import numpy as np
import pytest

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
    # The second release serves from user 11 on: all have the same value there.
    assert np.unique(line.get_ydata()) == pytest.approx([0.0, 0.2])
    rows = np.arange(11.0)[:, np.newaxis]
    assert plots._deciles(rows)[:, 0] == pytest.approx([1.0, 5.0, 9.0])
    assert any("median of 11 runs" in text.get_text() for text in figure.texts)


def test_worlds_have_rows_of_their_own_with_their_own_units():
    lines = {"a": [made("one", s) for s in range(3)] + [made("two", s, 5.0) for s in range(3)]}
    figure = plots.plot_results(lines, by_world=True)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert len(titles) == 4
    assert [title for title in titles if "Regret" in title] == ["one: Regret", "two: Regret"]
    assert any("median of 3 runs" in text.get_text() for text in figure.texts)
    together = plots.plot_results(lines)
    assert len(together.axes) == 2
    assert together.axes[0].get_title(loc="left") == "Regret, in optimal returns"
