"""Mixture agents on held-out worlds and against the bounds' orders: numbers, tables, pictures."""

import math
from dataclasses import replace

import numpy as np
import pytest

import tacit
from research import mixture_held_out, mixture_orders
from research.figure_names import FIGURES
from research.jobs import run_jobs
from research.mixture_orders import GAPS, LINES, LOCAL, Point
from tests.research.commands import TableChecks

PNG = b"\x89PNG\r\n\x1a\n"


class TestHeldOut(TableChecks):
    module, only = mixture_held_out, "statistics"
    title, row = "What is asked of users", "mixture_of_models"

    def prepare(self, monkeypatch):
        monkeypatch.setattr(mixture_held_out, "JOINT_USERS", 2_000)

    def check(self, rows):
        assert [row["statistic"] for row in rows] == ["model", "counts"]
        assert [row["users"] for row in rows] == [2_000, 2_000]
        assert rows[0]["switches"] == [rows[0]["releases"]]

    def test_limits_are_of_value_iteration_with_known_rewards(self):
        limited = {case.cells: case.limit for case in mixture_held_out.agents().cases if case.limit}
        assert limited == {
            ("mixture_of_models", "LinOptVI", "known", "1"): 240,
            ("mixture_of_models", "LinOptVI", "known", "10"): 30,
            ("hard_mixture", "LinOptVI", "known", "1"): 2_500,
            ("hard_mixture", "LinOptVI", "known", "10"): 750,
            ("hard_mixture, per step", "LinOptVI", "known", "1"): 2_500,
            ("hard_mixture, per step", "LinOptVI", "known", "10"): 1_100,
        }

    def test_rewards_are_known_where_the_table_says_so(self):
        for case in mixture_held_out.agents().cases:
            for job in (case.job, case.plain):
                if "of_models" not in job.world:  # drawn for longer than the others
                    known = job.agent(0).spec.known_rewards is not None
                    assert known == (case.cells[2] == "known")

    def test_budgets_are_those_asked_for(self):
        cases = {case.cells: case for case in mixture_held_out.local().cases}
        for (_, kind), case in cases.items():
            assert case.job.privacy == tacit.LocalDP(1.0, 1e-6)
            assert case.job.kind == kind


class TestOrders:
    def measured(self, power=0.5):
        """Regrets that grow with the given power, in every panel."""
        panels = mixture_orders.panels()
        regrets = {
            name: {
                line: np.array([[100.0 * x**power] * 3 for x in panel.x]) for line in panel.lines
            }
            for name, panel in panels.items()
        }
        return mixture_orders.Measured(panels, regrets)

    def test_gaps_shrink_with_users_and_budgets(self):
        assert Point(10**10).gap == pytest.approx(Point(10**8).gap / 10.0)
        assert Point(10**8, epsilon=0.01).gap == pytest.approx(10.0 * Point(10**8).gap)
        ratio = Point(10**10, local=True).gap / Point(10**6, local=True).gap
        assert ratio == pytest.approx(0.1)

    def test_no_gap_is_larger_than_possible(self):
        points = [
            point
            for panel in mixture_orders.panels().values()
            for some in panel.points
            for point in some
        ]
        assert all(point.gap <= 1.0 / (point.horizon * (point.dimension - 1)) for point in points)
        assert Point(10).gap == 1.0 / 12.0

    def test_random_actions_have_the_bounds_order(self):
        measured = self.measured()
        orders = {"users": 0.5, "local": 0.75, "epsilon": -0.5}
        for name, order in orders.items():
            x, random = measured.panels[name].x, measured.random(name)
            assert mixture_orders.slope(x, random) == pytest.approx(order, abs=0.03)
        assert measured.random("dimension") is None

    def test_the_worst_gap_counts(self, monkeypatch):
        panel = mixture_orders.panels(quick=True)["dimension"]
        line, points = LINES[0], panel.points[:1]
        small = replace(panel, x=panel.x[:1], points=points, lines=(line,))
        monkeypatch.setattr(mixture_orders, "panels", lambda quick: {"dimension": small})
        measured = mixture_orders.measure(quick=True, runs=1, workers=1)
        found = run_jobs([line.job(point) for point in points[0]], [0], workers=1)
        finals = [runs[0].result.regret[-1] for runs in found.values()]
        assert len(finals) == len(GAPS)
        assert measured.regrets["dimension"][line].tolist() == [[max(finals)]]

    def test_agents_are_what_their_line_says(self):
        for line in (*LINES, *LOCAL):
            agent = line.job(Point(10**6, epsilon=0.3)).agent(0)
            assert type(agent.algorithm).__name__ == line.agent
            epsilon = {"none": None, "joint": 0.3, "local": 10.0}[line.model]
            assert (agent.guarantee and agent.guarantee.epsilon) == epsilon
            kind = {"joint": "counts"}.get(line.model, "model")
            assert agent.algorithm.statistic_kind == kind

    def test_slopes_are_on_logarithmic_axes(self):
        assert self.measured(0.75).slope("users", LINES[0]) == pytest.approx(0.75)
        assert math.isnan(mixture_orders.slope([1.0, 2.0], np.array([0.0, 1.0])))

    def test_it_is_drawn_with_a_row_per_line(self, tmp_path):
        measured = self.measured()
        mixture_orders.paint(tmp_path / "a.png", measured)
        assert (tmp_path / "a.png").read_bytes().startswith(PNG)
        rows = mixture_orders.table(measured).splitlines()
        lines = sum(len(panel.lines) for panel in measured.panels.values())
        assert len(rows) == 2 + lines + 3
        assert {row.count("|") for row in rows} == {7}

    def test_it_is_a_figure(self):
        assert FIGURES["mixture-orders"] == "research.mixture_orders"


@pytest.mark.slow
def test_orders_are_measured_and_drawn(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    given = [f"--output={picture}", "--quick", "--runs=1", "--workers=1"]
    assert mixture_orders.main(given) == 0
    assert picture.read_bytes().startswith(PNG)
    printed = capsys.readouterr().out
    assert "| horizon H, 3 to 4 | VI, joint |" in printed
