"""Agents for continuous states: tables of held-out seeds, and the numbers behind the figures."""

from dataclasses import replace

import numpy as np
import pytest

import tacit
from research import (
    continuous_held_out,
    functional_baselines,
    functional_noise,
    functional_q_pictures,
)
from research.continuous_held_out import (
    BASELINES,
    FITTED,
    INPUT,
    NETWORK,
    ONLINE,
    PAPER,
    PLACES,
    PLAIN,
    PRINTED,
    TABLES,
    BoxJob,
    Case,
    PaperJob,
    Row,
    printed_job,
)
from research.figure_names import FIGURES
from research.jobs import Run
from research.worlds import plane
from tacit.continuous import line
from tests.research.commands import TableChecks, curves

PNG = b"\x89PNG\r\n\x1a\n"


def made_up(greedy=(1.0, 1.0, 2.8), values=None, served=(0, 10, 20), seed=0):
    """A run in a world with returns from 1 to 3."""
    return curves(served, greedy, values, (3.0, 1.0, 1.0), seed)


def runs_of(*results):
    return [Run(result, 1, 1, "a") for result in results]


class TestJobs:
    def test_a_run_is_that_of_the_loop(self):
        job = BoxJob("line", FITTED, PAPER, 20)
        run = job.run(3)
        again = tacit.run(job.agent(3), line(), 3, progress=False)
        assert run.result.greedy_values.tolist() == again.greedy_values.tolist()
        assert run.result.guarantee.epsilon == 0.9
        assert run.result.world == line().name

    def test_agents_are_what_the_job_says(self):
        agent = BoxJob("line", ONLINE, PAPER, 20, (("ends", True),)).agent(1)
        assert (agent.name, agent.users) == (FITTED, 20)
        assert (agent.algorithm.options.serve, agent.algorithm.options.ends) == ("all", True)
        assert agent.spec == line().spec

    def test_papers_have_the_budget_of_the_job_and_its_users(self):
        for kind in BASELINES:
            run = PaperJob("line", kind, PAPER, 20).run(1)
            assert run.result.guarantee.epsilon == pytest.approx(0.9)
            assert run.result.users == 20

    def test_scores_are_between_uniform_and_optimal(self):
        result = made_up(greedy=(1.0, 1.0, 2.8))
        assert continuous_held_out.score(result) == pytest.approx(0.9)
        assert continuous_held_out.score(result, 1.0) == 0.0
        assert continuous_held_out.score(result, 3.0) == 1.0

    def test_users_served_at_random_lose_everything(self):
        assert continuous_held_out.lost(made_up(values=(1.0, 1.0, 3.0))) == pytest.approx(1.0)
        # Ten at random, ten with three quarters.
        assert continuous_held_out.lost(made_up(values=(1.0, 2.5, 3.0))) == pytest.approx(0.625)

    def test_means_have_standard_errors(self):
        runs = runs_of(made_up(greedy=(1.0, 1.0, 2.0)), made_up(greedy=(1.0, 1.0, 3.0)))
        mean, error = continuous_held_out.mean_return(runs)
        assert mean == pytest.approx(2.5)
        assert error == pytest.approx(0.5)
        assert np.isnan(continuous_held_out.mean_return(runs[:1])[1])


class TestHeldOut(TableChecks):
    module, only = continuous_held_out, "agents"
    title, row = "FittedFunctionalQ", "line | 45 |"

    def check(self, rows):
        first = rows[0]["runs"][FITTED]
        expected = continuous_held_out.score(BoxJob("line", FITTED, PAPER, 45).run(0).result)
        assert first["scores"] == [pytest.approx(expected)]
        assert first["lost"] == [pytest.approx(1.0)]
        assert rows[0]["runs"]["plain"]["unit"] is None

    def test_targets_are_those_asked_for(self):
        targets = {case.cells: case.target for case in continuous_held_out.agents().cases}
        assert targets == {
            ("line", "45", "0.9, 1e-4"): 0.9,
            ("line", "45", "1, 1e-6"): 0.9,
            ("line", "6", "10, 1e-6"): 0.9,
            ("plane", "256", "0.9, 1e-4"): 0.9,
            ("plane", "256", "1, 1e-6"): 0.9,
            ("plane", "32", "10, 1e-6"): 0.9,
            ("trap", "300", "0.9, 1e-4"): 0.95,
            ("cartpole", "600", "1, 1e-6"): 0.9,
        }
        cases = continuous_held_out.paper().cases
        assert [case.target for case in cases] == [20.6] + [None] * (len(cases) - 1)
        assert cases[0].jobs["own"] == BoxJob("line", FITTED, PAPER, 100)

    def test_agents_have_their_defaults_and_the_budgets_of_the_cells(self):
        for place, case in zip(PLACES, continuous_held_out.agents().cases, strict=True):
            assert case.jobs[FITTED] == BoxJob(place.world, FITTED, place.privacy, place.users)
            assert case.jobs["plain"] == replace(case.jobs[FITTED], privacy=PLAIN)

    def test_all_jobs_can_be_made(self):
        for make in TABLES.values():
            for case in make().cases:
                for job in case.jobs.values():
                    if isinstance(job, PaperJob):
                        assert job.kind in BASELINES
                        continue
                    agent = job.agent(0)
                    private = not isinstance(job.privacy, tacit.NonPrivate)
                    assert (agent.guarantee is not None) == private

    def test_a_target_is_met_by_the_median(self):
        table = continuous_held_out.agents()
        case = Case(("w", "20", "1"), {}, 0.9)
        good, bad = made_up(greedy=(1.0, 1.0, 2.9)), made_up(greedy=(1.0, 1.0, 1.5))
        for runs, word in (((good, good, bad), "yes"), ((good, bad, bad), "no")):
            row = Row(case, {FITTED: runs_of(*runs), "plain": runs_of(good)})
            assert table.columns["at least"](row) == f"0.9: {word}"
        assert table.columns["score"](row) == "0.250 [0.250, 0.600]"
        assert table.columns["not private"](row) == "0.950 [0.950, 0.950]"

    def test_what_was_not_run_is_a_dash(self):
        table = continuous_held_out.online()
        row = Row(table.cases[-1], {ONLINE: runs_of(made_up())})
        assert table.columns["score with nobody served"](row) == "-"


class TestNoise:
    def test_paths_are_new_as_often_as_the_titles_say(self):
        one, episodes, rounds, paper = functional_noise.panels(100)
        for panel, resets in ((one, 1), (episodes, None), (rounds, 79)):
            assert dict(panel.jobs[0.4].options) == {"sigma": 0.4, "resets": resets}
        assert "79" in rounds.title
        options = dict(paper.jobs[0.4].options)
        assert (options["resets"], options["code"].rmsprop, options["code"].every) == (
            79,
            False,
            64,
        )

    def test_sigma_is_that_of_the_line(self):
        for panel in functional_noise.panels(10):
            for sigma, job in panel.jobs.items():
                assert dict(job.options)["sigma"] == sigma
        assert functional_noise.panels(3)[1].jobs[0.2].run(0).result.guarantee is None

    def test_without_noise_there_is_one_run_for_all_resets(self):
        panels = functional_noise.panels(10)
        assert len({panel.jobs[0.0] for panel in panels[:3]}) == 1
        assert len({job for panel in panels for job in panel.jobs.values()}) == 18
        # And indeed resets do not matter then.
        job = printed_job(4, sigma=0.0, resets=3)
        same = printed_job(4, sigma=0.0, resets=None)
        assert job.run(0).result.values.tolist() == same.run(0).result.values.tolist()

    def test_returns_are_those_of_users_one_by_one(self):
        job = functional_noise.panels(5)[1].jobs[0.2]
        results = [job.run(0).result]
        measured = functional_noise.Measured((), {job: results})
        assert measured.returns(job).shape == (1, 5)
        assert measured.returns(job)[0].tolist() == results[0].values[:5].tolist()

    def test_neighbours_are_averaged(self):
        x, rows = functional_noise.smoothed(np.arange(14.0).reshape(2, 7), 3)
        assert x.tolist() == [3.0, 6.0, 7.0]
        assert rows.tolist() == [[1.0, 4.0, 6.0], [8.0, 11.0, 13.0]]

    def test_it_is_drawn_with_a_row_per_panel(self, tmp_path):
        panels = functional_noise.panels(20)
        values = [*np.linspace(1.0, 3.0, 20), 0.0]
        results = [made_up(values, served=range(21), seed=seed) for seed in range(2)]
        jobs = {job for panel in panels for job in panel.jobs.values()}
        measured = functional_noise.Measured(panels, dict.fromkeys(jobs, results))
        functional_noise.paint(tmp_path / "a.png", measured)
        assert (tmp_path / "a.png").read_bytes().startswith(PNG)
        rows = functional_noise.table(measured).splitlines()
        assert len(rows) == 2 + 4
        assert {row.count("|") for row in rows} == {7}
        # The last four of twenty users.
        assert f"| {np.mean(values[16:20]):.1f} ± 0.0 |" in rows[2]


class TestBaselines:
    def measured(self):
        sizes = (10, 100, 1000)
        found = {}
        for line_ in functional_baselines.LINES:
            some = functional_baselines.sizes_of(line_, sizes)
            found[line_] = (some, np.outer(np.arange(1.0, len(some) + 1), [1.0, 2.0, 3.0]))
        return functional_baselines.Measured(sizes, {0.9: found, 0.45: found}, 12.0, 1.0)

    def test_budgets_are_for_all_but_the_printed_algorithm(self):
        for epsilon, sigma in functional_baselines.CLAIMS.items():
            for line_ in functional_baselines.LINES:
                if line_.kind == PRINTED:
                    assert dict(line_.job(epsilon, 50).options) == {"sigma": sigma}
                    assert "no guarantee" in line_.words
                    continue
                guarantee = line_.job(epsilon, 50).run(0).result.guarantee
                assert guarantee.epsilon == pytest.approx(epsilon)
                assert guarantee.delta == 1e-4
                if line_.kind in (INPUT, NETWORK):
                    assert "rewards only" in line_.words
                    assert "rewards" in guarantee.unit

    def test_every_line_is_in_one_panel(self):
        shown = [kind for kinds in functional_baselines.GROUPS.values() for kind in kinds]
        assert sorted(shown) == sorted(line_.kind for line_ in functional_baselines.LINES)

    def test_all_but_two_protect_episodes(self):
        units = {
            line_.kind: line_.job(0.9, 50).run(0).result.guarantee.unit
            for line_ in functional_baselines.LINES
            if line_.kind != PRINTED
        }
        whole = units[FITTED]
        assert [kind for kind, unit in units.items() if unit != whole] == [NETWORK, INPUT]

    def test_what_is_slow_has_fewer_users(self):
        by_kind = {line_.kind: line_ for line_ in functional_baselines.LINES}
        sizes = functional_baselines.SIZES
        assert functional_baselines.sizes_of(by_kind[FITTED], sizes) == list(sizes)
        assert functional_baselines.sizes_of(by_kind[PRINTED], sizes) == [10, 30, 100, 300]

    def test_as_printed_one_run_serves_for_all_sizes(self):
        by_kind = {line_.kind: line_ for line_ in functional_baselines.LINES}
        greedy = np.linspace(1.0, 3.0, 31)
        runs = [[made_up(greedy, served=range(31)), made_up(greedy / 2, served=range(31))]]
        rows = functional_baselines.returns(runs, by_kind[PRINTED], [10, 30])
        assert rows == pytest.approx(np.array([[greedy[10], greedy[10] / 2], [3.0, 1.5]]))
        separate = [[made_up((1.0, 1.0, 1.5))], [made_up((1.0, 1.0, 2.5))]]
        rows = functional_baselines.returns(separate, by_kind[FITTED], [10, 30])
        assert rows.tolist() == [[1.5], [2.5]]

    def test_it_is_measured(self, monkeypatch):
        fast = tuple(x for x in functional_baselines.LINES if x.kind in (FITTED, ONLINE, PRINTED))
        monkeypatch.setattr(functional_baselines, "LINES", fast)
        measured = functional_baselines.measure(runs=1, users=12, workers=1)
        assert list(measured.sizes) == [10, 12]
        assert measured.optimal == pytest.approx(line().optimal_value)
        assert measured.uniform == pytest.approx(line().baseline_value)
        for epsilon in (0.9, 0.45):
            _, rows = measured.returns[epsilon][fast[0]]
            job = fast[0].job(epsilon, 12)
            assert rows.shape == (2, 1)
            assert rows[1, 0] == job.run(0).result.greedy_values[-1]
            _, printed = measured.returns[epsilon][fast[-1]]
            assert printed[0, 0] == fast[-1].job(epsilon, 12).run(0).result.greedy_values[10]

    def test_it_is_drawn_with_a_row_per_line(self, tmp_path):
        measured = self.measured()
        functional_baselines.paint(tmp_path / "a.png", measured)
        assert (tmp_path / "a.png").read_bytes().startswith(PNG)
        rows = functional_baselines.table(measured).splitlines()
        assert len(rows) == 2 + 2 * len(functional_baselines.LINES)
        assert {row.count("|") for row in rows} == {6}
        assert rows[2].endswith("| 2.0 [1.2, 2.8] | 4.0 [2.4, 5.6] | 6.0 [3.6, 8.4] |")
        assert rows[8].startswith("| printed, no guarantee | 0.9 |")
        assert rows[8].endswith("| - |")


class TestReleasedQ:
    def test_truth_prefers_the_middle(self):
        states = np.linspace(0.0, 1.0, 201)
        q = functional_q_pictures.true_q(line(), 0.9, 30, states)
        below, above = states < 0.5, states > 0.5
        assert (q[1, below] > q[0, below]).all()
        assert (q[0, above] > q[1, above]).all()
        # The world is the same in the mirror.
        assert q[0] == pytest.approx(q[1, ::-1])

    def test_truth_after_one_sweep_is_the_expected_reward(self):
        q = functional_q_pictures.true_q(line(), 0.9, 1, np.linspace(0.0, 1.0, 5))
        # From 0 upwards: the mean of U[0, 1/4]; downwards one stays.
        assert q[:, 0] == pytest.approx([0.0, 0.125])
        # From 1/2 to either side: 1/2 - 1/8.
        assert q[:, 2] == pytest.approx([0.375, 0.375])

    def test_the_plane_has_its_best_actions(self):
        axis = np.array([0.1, 0.3, 0.8])
        best = functional_q_pictures.best_on_plane(axis)
        world = plane()
        for i, first in enumerate(axis):
            for j, second in enumerate(axis):
                if i == j or np.isclose(abs(first - 0.5), abs(second - 0.5)):
                    continue
                gains = []
                for action in range(4):
                    moves = np.linspace(0.0, 0.25, 51) * (1 if action % 2 else -1)
                    there = np.tile([first, second], (51, 1))
                    there[:, action // 2] = np.clip(there[:, action // 2] + moves, 0.0, 1.0)
                    gains.append(float(world.rewards(there).mean()))
                # Among the best right now; the farther one wins where both gain as much.
                assert gains[best[i, j]] == pytest.approx(max(gains))

    def test_what_is_shown_is_what_was_published(self):
        measured = functional_q_pictures.measure(line_users=20, plane_users=10)
        agent = measured.line.agent
        assert agent.guarantee.epsilon == pytest.approx(0.9)
        differences = measured.q[1] - measured.q[0]
        policy = agent.greedy_policy
        chosen = policy.greedy(measured.states[:, np.newaxis])
        clear = np.abs(differences) > 1e-9
        assert ((differences > 0) == chosen)[clear].all()
        assert measured.q.max(axis=0).mean() == pytest.approx(0.0)
        assert measured.truth.max(axis=0).mean() == pytest.approx(0.0)
        assert (measured.std >= 0).all()
        # The points of the grid are among those shown.
        assert measured.std[0, ::10] == pytest.approx(functional_q_pictures.q_std(agent))
        far = measured.plane
        points = np.array([[measured.arrows[2], measured.arrows[7]]])
        assert measured.best[2, 7] == far.agent.greedy_policy.greedy(points)[0]
        algorithm = far.agent.algorithm
        weights = algorithm.q_mean(far.agent.state)
        corners = (weights @ algorithm.features(np.array([[0.0, 1.0], [0.5, 0.5]])).T).max(axis=0)
        shown = measured.values[0, -1] - measured.values[40, 40]
        assert shown == pytest.approx(corners[0] - corners[1])

    def test_actions_keep_their_names(self):
        world = line()
        shown = functional_q_pictures.learnt(world, 300)
        assert shown.agent.greedy_policy.greedy([[0.1], [0.9]]).tolist() == [1, 0]
        gain = world.value(shown.agent.greedy_policy) - world.baseline_value
        assert shown.score == pytest.approx(gain / (world.optimal_value - world.baseline_value))

    def test_it_is_drawn_and_told(self, tmp_path, capsys):
        path = tmp_path / "a.png"
        given = [f"--output={path}", "--line-users=20", "--plane-users=10"]
        assert functional_q_pictures.main(given) == 0
        assert path.read_bytes().startswith(PNG)
        assert "| line | 20 |" in capsys.readouterr().out


def test_they_are_figures():
    assert FIGURES["functional-noise"] == "research.functional_noise"
    assert FIGURES["functional-baselines"] == "research.functional_baselines"
    assert FIGURES["functional-q"] == "research.functional_q_pictures"
    assert list(FIGURES) == sorted(FIGURES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words"),
    [
        (functional_noise, "It is of an algorithm without a guarantee."),
        (functional_baselines, "| printed, no guarantee | 0.9 |"),
    ],
)
def test_figures_are_measured_and_drawn(tmp_path, capsys, module, words):
    path = tmp_path / "a.png"
    assert module.main([f"--output={path}", "--quick", "--runs=1", "--workers=1"]) == 0
    assert path.read_bytes().startswith(PNG)
    assert words in capsys.readouterr().out
