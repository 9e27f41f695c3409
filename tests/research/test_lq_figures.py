"""Linear-quadratic agents on held-out worlds, by budget, and as courses: numbers and pictures."""

import math
from dataclasses import replace

import numpy as np
import pytest

import tacit
from research import dosing_trajectories, lq_budget, lq_held_out
from research.figure_names import FIGURES
from research.lq_held_out import DOSING, MIDDLE, PLACES, Case, LQJob, LQRun, Row, Table
from research.worlds import random_system
from tacit.lq import GainPolicy, dosing
from tacit.lq.certainty_equivalence import LQConstants
from tacit.simulation.result import Result
from tests.research.commands import TableChecks, curves

PNG = b"\x89PNG\r\n\x1a\n"


def made_up(served=(0, 10, 100, 1000), greedy=(-2.0, -2.0, -1.04, -1.02), values=None, seed=0):
    """A run in a world with costs between 1 and 2."""
    return curves(served, greedy, values, (-1.0, -2.0, -2.0), seed)


class TestJobs:
    def test_worlds_have_the_seed_where_they_are_drawn(self):
        job = MIDDLE.job(tacit.NonPrivate(), 100)
        assert job.world_of(3).name == random_system(3, 2, 15, seed=3).name
        assert DOSING.job(tacit.NonPrivate(), 100).world_of(3).name == "dosing"

    def test_agents_are_what_the_job_says(self):
        job = MIDDLE.job(tacit.JointDP(1.0, 1e-6), 1000, constants=LQConstants(explore=0.2))
        agent = job.agent(3)
        assert (agent.name, agent.users) == ("certainty_equivalence", 1000)
        assert agent.algorithm.options.constants.explore == 0.2
        assert agent.spec == random_system(3, 2, 15, seed=3).spec

    def test_a_run_is_that_of_the_loop_and_has_the_posterior(self):
        job = LQJob(
            "random_system:n=2,d=1,horizon=3", "certainty_equivalence", tacit.NonPrivate(), 60
        )
        run = job.run(1)
        agent, world = job.agent(1), job.world_of(1)
        assert run.result == replace_seconds(tacit.run(agent, world, 1, progress=False), run.result)
        error = (world.theta - agent.state.posterior.mean).T.ravel()
        inverse = np.kron(np.eye(2), np.linalg.inv(agent.state.posterior.covariance))
        assert run.degrees == 6
        assert run.distance == pytest.approx(error @ inverse @ error)
        assert run.releases == len(run.result.served) - 1


def replace_seconds(result, other):
    """Times are no part of what is reproducible."""
    return Result.from_dict(result.to_dict() | {"seconds": dict(other.seconds)})


class TestRuns:
    def test_costs_are_in_units_of_zero_control(self):
        result = made_up(greedy=(-7.0, -2.0, -3.0, -1.0), values=(-5.0, -2.2, -3.2, -1.5))
        run = LQRun(result, 3, 3, "")
        assert run.worst_greedy == 1.5
        assert run.worst_serving == 1.6
        assert run.first_serving == 2.5

    def test_the_set_is_of_chi_square(self):
        # With two degrees of freedom its 90 % quantile is 2 ln 10.
        edge = 2.0 * math.log(10.0)
        inside, outside = (LQRun(made_up(), 3, 3, "", edge * f, 2) for f in (0.999, 1.001))
        assert inside.covered
        assert not outside.covered
        assert inside.ratio == pytest.approx(0.999 * edge / 2.0)

    def test_sets_hold_a_true_posterior_as_often_as_they_say(self):
        rng = np.random.default_rng(0)
        runs = [LQRun(made_up(), 3, 3, "", float(x), 15) for x in rng.chisquare(15, 4000)]
        # Within 5 standard errors: wrong once in 1.7 million.
        assert np.mean([run.covered for run in runs]) == pytest.approx(0.9, abs=0.0237)


class TestTables(TableChecks):
    module, only = lq_held_out, "agents"
    title, row = "Certainty equivalence under joint DP", "random_system 2, 1, 10"

    def prepare(self, monkeypatch):
        monkeypatch.setattr(lq_held_out, "JOINT_USERS", {1.0: 600, 10.0: 300})

    def check(self, rows):
        assert [row["users"] for row in rows] == [600, 300]
        assert [row["limit"] for row in rows] == [900, 90]
        assert all(len(row["distance_ratios"]) == 1 for row in rows)

    def test_limits(self):
        limits = {case.cells: case.limit for case in lq_held_out.agents().cases if case.limit}
        assert limits == {
            ("random_system 2, 1, 10", "1"): 900,
            ("random_system 2, 1, 10", "10"): 90,
            ("random_system 3, 2, 15", "1"): 800,
            ("random_system 3, 2, 15", "10"): 150,
            ("random_system 4, 2, 20", "1"): 1_800,
            ("random_system 4, 2, 20", "10"): 280,
            ("random_system 6, 3, 30", "1"): 2_700,
            ("random_system 6, 3, 30", "10"): 350,
            ("dosing", "1"): 1_200,
            ("dosing", "10"): 150,
        }

    def test_budgets_are_those_asked_for(self):
        for case in lq_held_out.agents().cases:
            private = case.cells[1] != "not private"
            expected = tacit.JointDP(float(case.cells[1]), 1e-6) if private else tacit.NonPrivate()
            assert [job.privacy for job in case.jobs] == [expected]
        for case in lq_held_out.local().cases:
            assert case.jobs[0].privacy == tacit.LocalDP(float(case.cells[1]), 1e-6)

    def test_no_run_is_too_short_for_its_limit(self):
        for case in lq_held_out.agents().cases:
            assert case.limit is None or case.jobs[0].users >= 10 * case.limit

    def test_honesty_is_of_all_worlds_at_two_lengths(self):
        cases = {case.cells: case for case in lq_held_out.honesty().cases}
        for users, label in ((10_000, "10k"), (100_000, "100k")):
            pooled = cases["all", "1", label]
            assert [job.world for job in pooled.jobs] == [place.world for place in PLACES]
            assert {job.users for job in pooled.jobs} == {users}

    def test_a_row_in_numbers_and_words(self):
        job = DOSING.job(tacit.JointDP(1.0, 1e-6), 1000)
        never = made_up(greedy=(-2.0, -3.0, -1.5, -1.5), values=(-4.0, -2.0, -1.5, -1.5))
        runs = [
            LQRun(made_up(), 3, 3, "", 9.0, 12),
            LQRun(made_up(), 3, 3, "", 15.0, 12),
            LQRun(never, 3, 3, "", 24.0, 12),
        ]
        row = Row(Case(("dosing", "1"), (job,), 100), runs)
        assert row.greedy == [100, 100, None]
        assert row.serving == [100, 100, None]
        assert row.kept is True
        assert replace_limit(row, 99).kept is False
        assert replace_limit(row, None).kept is None
        columns = {
            **lq_held_out.USERS,
            "limit": lq_held_out._limit,
            **lq_held_out.COSTS,
            **lq_held_out.LOSSES,
            **lq_held_out.HONESTY,
        }
        table = Table("Words", ("world", "ε"), (row.case,), columns, "A note.")
        lines = lq_held_out.markdown(table, [row]).splitlines()
        assert lines[0] == "### Words"
        assert lines[-1] == "A note."
        assert lines[4] == (
            "| dosing | 1 | 100 [100, not reached] | 100 [100, not reached] | 100: yes "
            "| 1.50 | 1.00 | 2.00 | 0.02, 0.02 | 1.33 | 2.00 | 2 of 3 |"
        )
        assert lines[2].count("|") == lines[3].count("|") == lines[4].count("|")

    def test_runs_too_short_for_the_median_have_a_star(self):
        job = DOSING.job(tacit.JointDP(1.0, 1e-6), 999)
        row = Row(Case(("dosing",), (job,)), [LQRun(made_up(), 3, 3, "")])
        assert row.users(row.greedy) == "100 [100, 100]*"

    def test_gains_and_noise_are_judged_apart(self):
        result = made_up(greedy=(-7.0, -2.0, -3.0, -1.0), values=(-5.0, -2.2, -3.2, -1.5))
        row = Row(Case((), ()), [LQRun(result, 3, 3, "")])
        words = lq_held_out.worst_words([row])
        assert "of 1 runs" in words
        assert "1.50 (gains alone: kept)" in words
        assert "1.60 (with the noise of served users: kept)" in words
        assert "2.50 (noise alone, before the first release: not kept)" in words

    def test_what_several_tables_need_is_run_once(self, monkeypatch):
        small = DOSING.job(tacit.NonPrivate(), 40)
        table = Table("T", ("a",), (Case(("x",), (small,)), Case(("y",), (small,))), {})
        made = {"one": lambda: table, "two": lambda: table}
        monkeypatch.setattr(lq_held_out, "TABLES", made)
        asked = []

        def run_all(jobs, seeds, workers):
            asked.append((list(jobs), list(seeds)))
            return {job: [LQRun(made_up(seed=s), 3, 3, "") for s in seeds] for job in jobs}

        monkeypatch.setattr(lq_held_out, "run_all", run_all)
        found = list(lq_held_out.measure(["one", "two"], runs=3, workers=1))
        assert asked == [([small], [0, 1, 2]), ([], [0, 1, 2])]
        assert [len(row.runs) for _, _, rows in found for row in rows] == [3, 3, 3, 3]


class TestBudget:
    def measured(self, users=1000):
        """The same two runs for every line."""
        shown = lq_budget.panels(users)
        runs = [made_up(), made_up(greedy=(-2.0, -1.8, -1.2, -1.0))]
        return lq_budget.Measured(
            shown, {line.job: runs for lines in shown.values() for line in lines}
        )

    def test_losses_are_of_the_last_gains_published(self):
        result = made_up(greedy=(-7.0, -1.5, -1.04, -1.02))
        at = np.array([1.0, 9.0, 10.0, 99.0, 100.0, 999.0, 1000.0])
        assert lq_budget.losses_at(result, at) == pytest.approx([1, 1, 0.5, 0.5, 0.04, 0.04, 0.02])

    def test_there_is_a_row_of_losses_for_each_run(self):
        measured = self.measured()
        job = next(iter(measured.results))
        losses = measured.losses(job, np.array([10.0, 1000.0]))
        assert losses == pytest.approx(np.array([[1.0, 0.02], [0.8, 0.0]]))
        assert (measured.runs, measured.users) == (2, 1000)

    def test_budgets_are_those_of_the_labels(self):
        by_budget, by_agent = lq_budget.panels(1000).values()
        epsilons = [getattr(line.job.privacy, "epsilon", None) for line in by_budget]
        assert epsilons == [0.1, 1.0, 10.0, None]
        assert [line.label for line in by_budget] == ["ε = 0.1", "ε = 1", "ε = 10", "not private"]
        assert {getattr(line.job.privacy, "epsilon", 1.0) for line in by_agent} == {1.0}
        assert [line.label for line in by_agent] == ["local DP", "joint DP", "not private"]

    def test_what_is_in_both_panels_is_run_once(self):
        shown = lq_budget.panels(1000)
        jobs = [line.job for lines in shown.values() for line in lines]
        assert (len(jobs), len(set(jobs))) == (7, 5)

    def test_it_is_drawn_with_a_row_per_line(self, tmp_path):
        measured = self.measured()
        lq_budget.paint(tmp_path / "a.png", measured)
        assert (tmp_path / "a.png").read_bytes().startswith(PNG)
        rows = lq_budget.table(measured).splitlines()
        assert len(rows) == 2 + 7
        assert len({row.count("|") for row in rows}) == 1
        # At a hundred users losses are .04 and .2, at a thousand .02 and 0.
        assert "| 0.12 | 0.01 |" in rows[2]

    def test_it_is_measured(self):
        measured = lq_budget.measure(runs=1, users=300, workers=1)
        assert measured.runs == 1
        for job, runs in measured.results.items():
            assert [run.users for run in runs] == [300]
            assert (runs[0].guarantee is None) == isinstance(job.privacy, tacit.NonPrivate)


class TestCourses:
    def test_the_same_users_follow_all_policies(self):
        measured = dosing_trajectories.measure(users=100, shown=5)
        starts = [one.effects[:, 0] for one in measured.courses]
        assert np.array_equal(starts[0], starts[1])
        assert np.array_equal(starts[0], starts[2])
        # The effect follows the dose two steps later: until then luck is the same, too.
        assert measured.courses[0].effects[:, 1] == pytest.approx(measured.courses[2].effects[:, 1])
        assert not np.allclose(measured.courses[0].effects[:, 3], measured.courses[2].effects[:, 3])

    def test_costs_are_exact(self):
        before, learnt, optimal = dosing_trajectories.measure(users=100, shown=5).courses
        assert before.cost == pytest.approx(2.2301, abs=1e-4)
        assert optimal.cost == pytest.approx(1.5638, abs=1e-4)
        assert optimal.cost <= learnt.cost
        assert not before.doses.any()

    def test_doses_are_the_gains_times_the_state(self):
        world = dosing()
        policy = GainPolicy(world.optimal_policy.gains)
        one = dosing_trajectories.course("", world, policy, 4, seed=7)
        data = world.simulate(policy, 4, np.random.default_rng(7), "episodes")
        expected = np.einsum("hi,uhi->uh", policy.gains[:, 0], data.states[:, :-1])
        assert one.doses == pytest.approx(expected)
        assert np.array_equal(one.effects, data.states[:, :, 2])
        assert one.effects.shape == (4, 25)

    def test_what_is_learnt_is_that_of_the_run(self):
        measured = dosing_trajectories.measure(users=400, shown=2)
        optimal, zero = measured.courses[2].cost, measured.courses[0].cost
        loss = (measured.courses[1].cost - optimal) / (zero - optimal)
        assert measured.loss == pytest.approx(loss)
        assert measured.result.guarantee.epsilon == 1.0

    def test_it_is_drawn_and_told(self, tmp_path, capsys):
        path = tmp_path / "a.png"
        given = [f"--output={path}", "--users=100", "--shown=3"]
        assert dosing_trajectories.main(given) == 0
        assert path.read_bytes().startswith(PNG)
        printed = capsys.readouterr().out
        assert "| Optimal | 1.5638 |" in printed
        assert "| Before: the usual dose | 2.2301 |" in printed


def replace_limit(row, limit):
    return Row(replace(row.case, limit=limit), row.runs)


def test_they_are_figures():
    assert FIGURES["lq-budget"] == "research.lq_budget"
    assert FIGURES["dosing-trajectories"] == "research.dosing_trajectories"
    assert list(FIGURES) == sorted(FIGURES)


@pytest.mark.slow
def test_budgets_are_measured_and_drawn(tmp_path, capsys):
    path = tmp_path / "a.png"
    assert lq_budget.main([f"--output={path}", "--quick", "--runs=1", "--workers=1"]) == 0
    assert path.read_bytes().startswith(PNG)
    assert "| Certainty equivalence, by budget: ε = 10 |" in capsys.readouterr().out
