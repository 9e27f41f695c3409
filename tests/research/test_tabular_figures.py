"""What epsilon costs, held-out worlds and the orders: numbers, tables, pictures, refusals."""

import importlib
import math
from dataclasses import replace

import numpy as np
import pytest

from research import epsilon_cost, held_out, tabular_orders
from research.epsilon_cost import Cost
from research.figure_names import FIGURES
from tacit.simulation.result import Result
from tests.research.commands import refused_in_one_line


def result(users, until, greedy=None):
    """A run that is bad until ``until`` users and optimal from then on; never, if ``None``."""
    served = [0, users // 2, users] if until is None else [0, until, users]
    good = 0.0 if until is None else 1.0
    return Result(
        agent="a",
        world="w",
        privacy="p",
        seed=0,
        served=served,
        values=[0.0, good, good],
        greedy_values=[0.0, good, good] if greedy is None else greedy,
        optimal_value=1.0,
        baseline_value=0.0,
        reference_value=0.0,
    )


class TestCost:
    def test_median_and_band_leave_out_a_tenth_on_either_side(self):
        cost = Cost.of([result(10_000, until) for until in range(10, 110, 10)])
        assert cost.median == 55.0
        assert cost.band == (20.0, 90.0)
        assert str(cost) == "55 (20 to 90)"

    def test_runs_that_never_got_there_count_as_infinite(self):
        runs = [result(10_000, 10), result(10_000, None), result(10_000, None)]
        assert Cost.of(runs).median is None
        assert str(Cost.of(runs)) == "not reached* (10 to not reached)"
        assert str(Cost.of(runs[1:])) == "not reached"

    def test_a_star_marks_runs_that_are_too_short_to_tell(self):
        assert str(Cost.of([result(999, 100)])) == "100* (100 to 100)"
        assert str(Cost.of([result(1_000, 100)])) == "100 (100 to 100)"

    def test_the_greedy_policy_has_a_cost_of_its_own(self):
        runs = [result(1_000, 50, greedy=[1.0, 1.0, 1.0])]
        assert Cost.of(runs).users == (50.0,)
        assert Cost.of(runs, greedy=True).users == (0.0,)


def test_every_budget_has_a_column_and_every_line_a_row():
    cost = Cost((5.0,), True)
    costs = {line.label: dict.fromkeys(epsilon_cost.EPSILONS, cost) for line in epsilon_cost.LINES}
    rows = epsilon_cost.table(costs).splitlines()
    assert len(rows) == 2 + len(epsilon_cost.LINES)
    assert {row.count("|") for row in rows} == {len(epsilon_cost.EPSILONS) + 3}


def test_the_cost_of_epsilon_is_drawn(tmp_path):
    costs = {
        line.label: {
            epsilon: Cost((10 / epsilon, 20 / epsilon, math.inf), True)
            for epsilon in epsilon_cost.EPSILONS
        }
        | ({} if line.local else {None: Cost((0.0, 0.0, 3.0), True)})
        for line in epsilon_cost.LINES
    }
    epsilon_cost.draw(tmp_path / "cost.png", costs, 3)
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_held_out_world_has_both_agents_and_their_ratio(capsys):
    assert held_out.main(["--runs=1", "--worlds", "random_mdp, seed 1"]) == 0
    cells = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].split("|")]
    assert cells[1:3] == ["random_mdp, seed 1", "10, 3, 10"]
    private, plain = (float(cells[i].split()[0].strip("*").replace(",", "")) for i in (3, 5))
    assert private > plain > 0
    assert float(cells[6].replace(",", "")) == pytest.approx(private / plain, abs=0.5)


def test_no_ratio_where_one_of_them_fails():
    row = held_out.Row("w", (2, 2, 2), Cost((math.inf,), False), Cost((5.0,), True), *[None] * 2)
    assert row.ratio is None
    assert replace(row, private=Cost((50.0,), True)).ratio == 10.0


@pytest.mark.parametrize("users", [10**6, 10**8])
def test_the_gap_of_the_hard_world_shrinks_with_the_root_of_its_users(users):
    world = tabular_orders.hard_world(users)
    gap = 40.0 * math.sqrt(4 / users)
    assert world.optimal_value == pytest.approx(0.5 * (1 + gap))
    assert world.baseline_value == pytest.approx(0.5)


def test_slopes_are_those_of_medians():
    users = (100, 1_000, 10_000)
    rows = np.array([[10.0, 1.0, 1e9], [100.0, 1.0, 1e9], [1_000.0, 1.0, 1e9]])
    measured = tabular_orders.Measured(users, {}, {}, 100)
    assert measured.slope(rows) == pytest.approx(1.0)
    assert math.isnan(measured.slope(-rows))


@pytest.mark.slow
def test_the_orders_are_measured_and_drawn(tmp_path, capsys):
    picture = tmp_path / "orders.png"
    assert tabular_orders.main([f"--output={picture}", "--quick"]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    printed = capsys.readouterr().out
    assert "| regret, random actions | 40,000 | 126,491 | 0.50 |" in printed
    assert printed.count("\n| regret, PO") == 2


@pytest.mark.parametrize("module", sorted({*FIGURES.values(), "research.held_out"}))
def test_every_figure_refuses_nonsense_in_one_line(module, capsys):
    main = importlib.import_module(module).main
    refused_in_one_line(main, ["--output=/no/such/folder/picture.png", "--nonsense"], capsys)
