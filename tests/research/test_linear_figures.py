"""Linear agents compared, over budgets and on held-out worlds: numbers, words, tables, pictures."""

from dataclasses import replace

import numpy as np
import pytest

import tacit
from research import linear_budgets, linear_comparison, linear_held_out, paper_switching
from research.jobs import Job, Run, run_jobs
from research.linear_comparison import Verdict, myopic_loss
from research.linear_held_out import Case, Row
from tacit.privacy.budget import Guarantee, Relation
from tacit.simulation.result import Result
from tacit.simulation.sweep import SeedFailed
from tests.research.commands import TableChecks

PNG = b"\x89PNG\r\n\x1a\n"
SMALL = Job("simplex:states=4,actions=3,horizon=3", "LSVIUCB", tacit.NonPrivate(), 20)


def result(until, users=1_000, seed=0, guarantee=None, world="two_state:seed=0"):
    """A run that is bad until ``until`` users and optimal from then on; never, if ``None``."""
    served = [0, users // 2, users] if until is None else [0, until, users]
    good = 0.0 if until is None else 1.0
    return Result(
        agent="a",
        world=world,
        privacy="p",
        seed=seed,
        served=served,
        values=[0.0, good, good],
        greedy_values=[0.0, good, good],
        optimal_value=1.0,
        baseline_value=0.2,
        reference_value=0.0,
        guarantee=guarantee,
    )


def proven(epsilon):
    return Guarantee(
        model="joint",
        epsilon=epsilon,
        delta=1e-6,
        mu=None,
        relation=Relation.REPLACE_ONE,
        releases=14,
        mechanism="Gaussian noise",
    )


def run(until, switches=3, **options):
    return Run(result(until, **options), switches, 4, "features")


class TestRuns:
    def test_every_seed_has_a_world_of_its_own(self):
        runs = run_jobs([SMALL], range(2), workers=1)[SMALL]
        assert [run.result.seed for run in runs] == [0, 1]
        assert [f"seed={seed}" in runs[seed].result.world for seed in (0, 1)] == [True, True]
        assert runs[0].result.optimal_value != runs[1].result.optimal_value
        assert all(0 < run.switches <= run.releases for run in runs)

    def test_a_failure_names_agent_world_and_seed(self):
        bad = SMALL.with_options(growth=0.5)
        with pytest.raises(SeedFailed, match=r"seed 3 failed: LSVIUCB on simplex.*growth"):
            run_jobs([bad], [3], workers=1)

    @pytest.mark.slow
    def test_the_number_of_workers_changes_nothing(self):
        jobs = [SMALL, replace(SMALL, kind="LSVIUCBPlusPlus")]
        one, two = (run_jobs(jobs, range(2), workers) for workers in (1, 2))
        for job in jobs:
            for a, b in zip(one[job], two[job], strict=True):
                assert np.array_equal(a.result.values, b.result.values)
                assert (a.switches, a.statistic) == (b.switches, b.statistic)


class TestVerdict:
    @pytest.mark.parametrize(("wins", "answer"), [(9, "holds"), (8, "these runs do not tell")])
    def test_ten_runs_tell_from_nine_on(self, wins, answer):
        mine, other = np.ones(10), np.full(10, 2.0)
        mine[wins:] = 3.0
        verdict = Verdict.of(mine, other)
        assert (verdict.wins, verdict.losses, verdict.ratio) == (wins, 10 - wins, 0.5)
        assert verdict.answer == answer

    def test_the_chance_is_that_of_coins(self):
        assert Verdict(1.0, 10, 0).chance == pytest.approx(2 / 2**10)
        assert Verdict(1.0, 2, 2).chance == 1.0
        assert Verdict(1.0, 0, 0, 10).chance == 1.0

    def test_equal_runs_are_no_win(self):
        same = Verdict.of(np.ones(10), np.ones(10))
        assert same.answer == "they are equal"
        assert "lower in 0 and equal in 10 of 10 runs" in str(same)


class TestComparison:
    def measured(self, ours=50, ngo=50, printed=None):
        until = {linear_comparison.OURS: ours, linear_comparison.NGO: ngo}
        plain = (linear_comparison.TWIN, linear_comparison.PLAIN)
        until |= dict.fromkeys(plain, 2) | {linear_comparison.PRINTED: printed}
        results = {
            line: [
                result(
                    until.get(line, 100),
                    seed=seed,
                    guarantee=proven(0.0123) if line.printed else None,
                )
                for seed in range(10)
            ]
            for line in linear_comparison.LINES
        }
        return linear_comparison.Measured({"two_state": 1_000}, {"two_state": results})

    def test_what_holds_is_said_and_what_does_not(self):
        words = linear_comparison.what_holds(self.measured())
        for claim in (
            "than private LSVI-UCB at an equal budget: holds (regret 0.50 times, lower in 10",
            "after Luyo et al. and Ngo et al. are reconstructed: no verdict",
            "close to its non-private twin: does not hold (regret 25 times)",
            "better than non-private LSVI-UCB: does not hold (regret 25 times",
            "nothing is private. That is not drawn.",
        ):
            assert claim in words
        assert "better than Luyo" not in words
        assert "better than Ngo" not in words

    def test_the_papers_noise_is_named_by_what_is_proven(self):
        words = linear_comparison.what_holds(self.measured())
        assert "printed size, a release per user, epsilon 0.012 is proven" in words
        assert linear_comparison.proven(self.measured(), "two_state") == "ε = 0.012"

    def test_it_is_drawn_with_a_row_per_line(self, tmp_path, monkeypatch):
        monkeypatch.setattr(linear_comparison, "WORLDS", {"two_state": 1_000})
        linear_comparison.paint(tmp_path / "a.png", self.measured())
        assert (tmp_path / "a.png").read_bytes().startswith(PNG)
        rows = linear_comparison.table(self.measured()).splitlines()
        assert len(rows) == 2 + len(linear_comparison.LINES)
        asks = "Gram (GOE), values"
        assert rows[-2] == f"| paper, printed | {asks} | 1,000 [1,000, 1,000] | not reached |"

    def test_known_rewards_are_enough_where_the_myopic_policy_is_best(self):
        assert myopic_loss("two_state:seed=4") == 0.0
        assert 0.12 < myopic_loss("simplex:seed=4") < 1.0

    def test_the_paper_knows_rewards_and_all_others_do_not(self):
        for line in linear_comparison.LINES:
            known = "known_rewards=True" in line.job("two_state", 1_000).world
            assert known == line.paper

    def test_the_papers_run_is_its_algorithm_at_the_printed_noise(self):
        job = linear_comparison.PRINTED.job("two_state:horizon=3", 300)
        found, run = job.paper_result(1), job.run(1)
        assert found.printed
        # The largest noise there is: nothing is scaled down to fewer releases.
        assert found.constants["gram_noise"] == pytest.approx(
            np.sqrt(2 * 3 * 300 / found.constants["rho"])
        )
        assert run.result.regret[-1] == pytest.approx(found.regret[-1])
        assert (run.result.users, run.releases) == (300, 300)

    def test_lines_say_what_they_ask(self):
        asked = {line: line.asks("two_state", 1_000) for line in linear_comparison.LINES}
        assert asked[linear_comparison.OURS] == "counts"
        assert asked[linear_comparison.TWIN] == "features"
        assert asked[linear_comparison.LUYO] == asked[linear_comparison.PRINTED]

    def test_private_agents_have_one_budget(self):
        lines = [line for line in linear_comparison.LINES if line.private and not line.paper]
        budgets = {line.job("simplex", 1_000).agent(0).guarantee.epsilon for line in lines}
        assert len(lines) == 2
        assert budgets == {1.0}
        rebuilt = (linear_comparison.LUYO, linear_comparison.NGO)
        proofs = [line.job("two_state:horizon=3", 100).paper_result(0) for line in rebuilt]
        assert [found.guarantee.epsilon for found in proofs] == pytest.approx([1.0, 1.0], rel=1e-6)
        assert all(found.algorithm.endswith("reconstructed") for found in proofs)


class TestSwitching:
    def test_switches_are_counted(self):
        row = paper_switching.measure("two_state", 100, 1)
        assert row["bound"] == pytest.approx(10 * 20 * np.log2(100))
        assert row["switches"] == {"printed": [0], "corrected": [0]}


class TestBudgets:
    def measured(self, factor=90.0):
        until = dict.fromkeys(linear_budgets.PENS, 1) | {
            epsilon: max(1, round(factor / epsilon)) for epsilon in linear_budgets.EPSILONS
        }
        results = {key: [result(until[key], seed=s) for s in range(10)] for key in until}
        users = {"two_state": 1_000, "simplex": 1_000}
        return linear_budgets.Measured(users, dict.fromkeys(users, results))

    def test_from_which_epsilon_it_is_close(self):
        words = linear_budgets.what_holds(self.measured(factor=20.0))
        assert "as epsilon grows: holds (regret 200, 67, 20, 7.0, 2.0, 1.00 times" in words
        assert "is close to it: from epsilon 10 on; at epsilon 30: holds" in words
        assert "LSVI-UCB: at none of these budgets; at epsilon 30: they are equal" in words

    def test_or_from_none(self):
        words = linear_budgets.what_holds(self.measured())
        assert "is close to it: at none of these budgets; at epsilon 30: does not hold" in words
        assert "At epsilon 0.1 privacy costs 899 optimal returns, which is 90 % of 1,000." in words

    def test_it_is_drawn_with_a_row_per_budget(self, tmp_path):
        linear_budgets.paint(tmp_path / "a.png", self.measured())
        assert (tmp_path / "a.png").read_bytes().startswith(PNG)
        rows = linear_budgets.table(self.measured()).splitlines()
        assert len(rows) == 2 + len(linear_budgets.PENS)
        assert {row.count("|") for row in rows} == {8}

    def test_budgets_are_those_asked_for(self):
        agents = [linear_budgets.job("simplex", 1_000, e).agent(0) for e in (0.1, 30.0)]
        assert [agent.guarantee.epsilon for agent in agents] == [0.1, 30.0]
        assert linear_budgets.job("simplex", 10, linear_budgets.TWIN).agent(0).guarantee is None


class TestHeldOut(TableChecks):
    module, only = linear_held_out, "statistics"
    title, row = "What is asked of users", "two_state"

    def check(self, rows):
        assert [row["options"]["statistic"] for row in rows] == ["features", "counts"]
        assert rows[0]["switches"][0] == rows[0]["releases"]

    def case(self, **options):
        return Case(("w",), SMALL, **options)

    def test_a_star_marks_runs_that_are_too_short_to_tell(self):
        row = Row(self.case(), [run(3), run(3), run(2)])
        assert row.users == "3 [2, 3]*"
        assert replace(row, runs=[run(2)]).users == "2 [2, 2]"
        assert replace(row, runs=[run(None)]).users == "not reached"

    def test_ratios_are_of_medians_and_need_both(self):
        row = Row(self.case(), [run(30), run(50), run(40)], [run(4), run(5), run(4)])
        assert row.ratio == 10.0
        assert replace(row, runs=[run(None)]).ratio is None
        assert replace(row, plain=()).ratio is None

    @pytest.mark.parametrize(("until", "kept"), [(5, "5: yes"), (6, "5: no"), (None, "5: no")])
    def test_limits_are_for_medians(self, until, kept):
        assert Row(self.case(limit=5), [run(until)]).kept == kept

    def test_rivals_are_compared_run_by_run(self):
        mine, other = [run(2), run(9), run(None), run(5)], [run(3), run(8), run(None), run(None)]
        assert Row(self.case(), mine, rival=other).fewer == "2 of 4, 1 equal"
        assert Row(self.case(), mine[:2], rival=other[:2]).fewer == "1 of 2"

    def test_all_agents_of_small_worlds_can_be_made(self):
        tables = [make() for make in linear_held_out.TABLES.values()]
        jobs = {job for table in tables for case in table.cases for job in case.jobs}
        for job in jobs:
            if "states" not in job.world:
                assert job.agent(0).users == job.users


@pytest.mark.slow
@pytest.mark.parametrize("module", [linear_comparison, linear_budgets])
def test_figures_are_measured_and_drawn(module, tmp_path, capsys):
    picture = tmp_path / "picture.png"
    assert module.main([f"--output={picture}", "--quick", "--workers=1"]) == 0
    assert picture.read_bytes().startswith(PNG)
    printed = capsys.readouterr().out
    assert "two_state, 2,000 users" in printed
    assert "simplex, 2,000 users" in printed
    assert "Close is a regret of at most 2 times." in printed
