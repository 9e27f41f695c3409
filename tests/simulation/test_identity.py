"""What is known by content: nothing that was edited is merged, reused or drawn as one line."""

import importlib
import json
import sys
from datetime import date
from fractions import Fraction

import gymnasium
import pytest

import tacit
from tacit import InvalidArgument, registry
from tacit.simulation import identity
from tacit.simulation.identity import agent_digest, world_digest
from tacit.simulation.plots import plot_results
from tacit.simulation.sweep import Job, _done, _packed, sweep
from tacit.simulation.tables import merged
from tacit.tabular.spec import FiniteSpec

WORLD = "riverswim:states=3,horizon=4"
TABLES = {
    "horizon": 3,
    "transitions": [[[0.9, 0.1], [0.2, 0.8]]] * 2,
    "rewards": [[0.0, 0.1], [1.0, 0.5]],
    "name": "mine",
}
AGENT = """
import helper_of_mine
import tacit
def make(spec, users=1, privacy=None, seed=0, noise_seed=0):
    return tacit.UCBVI(spec, users, privacy, seed=seed, noise_seed=noise_seed)
def scaled(spec, **given):
    return tacit.UCBVI(spec, scale=helper_of_mine.SCALE, **given)
"""


class Zero(gymnasium.RewardWrapper):
    """Pays what it was made with."""

    def __init__(self, env, paid=0.0):
        super().__init__(env)
        self.paid = paid

    def reward(self, reward):
        return self.paid


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "helper_of_mine.py").write_text("SCALE = 1.0\n")
    (tmp_path / "mine.py").write_text(AGENT)
    yield tmp_path
    forget()


def forget():
    sys.modules.pop("helper_of_mine", None)
    registry._file.cache_clear()
    importlib.invalidate_caches()


def small(**changes):
    given = {"worlds": [WORLD], "agents": ["ucbvi"], "budgets": [tacit.NonPrivate()], "users": 60}
    return sweep(**given | {"seeds": [0], "progress": False} | changes)


def ran(folder, **changes):
    """How many jobs of a sweep were not kept."""
    jobs = []
    small(folder=folder, callback=lambda job, result: jobs.append(job), **changes)
    return len(jobs)


def test_a_wrapper_and_its_arguments_are_content():
    plain = world_digest(tacit.world("gym:CartPole-v1"))
    assert plain == world_digest(tacit.world(gymnasium.make("CartPole-v1")))
    wrapped = [tacit.world(Zero(gymnasium.make("CartPole-v1"), paid)) for paid in (0.0, 0.0, 1.0)]
    digests = [world_digest(one) for one in wrapped]
    assert len({plain, *digests}) == 3
    assert digests[0] == digests[1]
    wrapped[0].baseline_value  # noqa: B018  # who played is the same as before
    assert world_digest(wrapped[0]) == digests[0]
    assert wrapped[0].name == "gym:CartPole-v1+Zero"
    other = gymnasium.make("CartPole-v1", sutton_barto_reward=True)
    assert world_digest(tacit.world(other)) != plain


@pytest.mark.parametrize(
    "name", ["riverswim", "simplex:seed=0", "hard_mixture", "dosing", "line", "gym:FrozenLake-v1"]
)
def test_a_digest_is_of_content_and_of_nothing_that_is_computed_later(name):
    one, other = tacit.world(name), tacit.world(name)
    before = world_digest(one)
    one.optimal_value, one.baseline_value  # noqa: B018
    assert world_digest(one) == before == world_digest(other)


def test_options_and_what_an_agent_was_told_are_content():
    spec, given = tacit.world(WORLD).spec, {"users": 60, "privacy": tacit.NonPrivate()}
    digests = [
        agent_digest(tacit.UCBVI(spec, **given, **options))
        for options in ({}, {"seed": 3}, {"scale": 2.0}, {"schedule": "fixed:size=20"})
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    assert agent_digest(tacit.UCBPO(spec, **given)) not in digests
    told = FiniteSpec(states=3, actions=2, horizon=4, stationary=True)
    assert agent_digest(tacit.UCBVI(told, **given)) not in digests


def test_an_edited_world_file_is_another_world(here):
    file = here / "mine.json"
    file.write_text(json.dumps(TABLES))
    changes = {"worlds": ["mine.json"]}
    assert (ran("runs", **changes), ran("runs", **changes)) == (1, 0)
    first = small(**changes).labelled()
    file.write_text(json.dumps(TABLES | {"rewards": [[0.0, 0.1], [0.0, 0.5]]}))
    assert ran("runs", **changes) == 1
    second = small(**changes).labelled()
    both = merged([first, second])
    assert [len(runs) for runs in both.values()] == [1, 1]
    assert all(", world " in label for label in both)
    figure = plot_results(
        {"a": [run for part in (first, second) for runs in part.values() for run in runs]}
    )
    assert len({axes.get_title(loc="left") for axes in figure.axes}) == 2, "panels of their own"


def test_an_edited_module_that_an_agent_imports_is_another_agent(here):
    agents = {"agents": ["mine.py:scaled"]}
    assert (ran("runs", **agents), ran("runs", **agents)) == (1, 0)
    assert ran("runs", agents=["ucbvi"]) == 1
    (here / "helper_of_mine.py").write_text("SCALE = 3.0  # edited\n")
    with pytest.raises(InvalidArgument, match="helper_of_mine was edited after it was imported"):
        ran("runs", **agents)
    forget()  # as another day
    assert ran("runs", **agents) == 1
    made = small(**agents)
    assert made.jobs[0].build(tacit.world(WORLD)).algorithm.options.scale == 3.0
    assert ran("runs", agents=["ucbvi"]) == 0


def test_a_module_that_was_edited_after_its_import_is_refused(here):
    sys.path.append(str(here))
    importlib.invalidate_caches()
    helper = importlib.import_module("helper_of_mine")
    agents = {"agents": ["mine.py:make"]}
    small(**agents)
    del sys.modules["helper_of_mine"]
    sys.modules["helper_of_mine"] = helper
    (here / "helper_of_mine.py").write_text("SCALE = 2.0\n")
    assert identity.own_sources("helper_of_mine") == {"helper_of_mine": b"SCALE = 2.0\n"}
    with pytest.raises(InvalidArgument, match="helper_of_mine was edited after it was imported"):
        identity.sources_digest(make_by_helper(helper))


def make_by_helper(helper):
    code = compile("def make():\n    return SCALE\n", "helper_of_mine.py", "exec")
    exec(code, vars(helper))  # noqa: S102
    return helper.make


def test_two_worlds_or_agents_of_one_name_are_two_lines():
    worlds = [lambda: tacit.tabular.riverswim(3, 4), lambda: tacit.tabular.riverswim(3, 5)]
    agents = [
        lambda spec, **given: tacit.UCBVI(spec, scale=1.0, **given),
        lambda spec, **given: tacit.UCBVI(spec, scale=2.0, **given),
    ]
    made = small(worlds=worlds, agents=agents)
    assert len(made.worlds) == 2
    for world in made.worlds:
        assert [len(runs) for runs in made.labelled(world).values()] == [1, 1]
    assert len(made.plot().axes) == 4


def test_a_run_that_is_there_twice_with_other_values_is_refused():
    [result] = small().results.values()
    changed = tacit.Result.from_dict(result.to_dict() | {"values": (result.values + 1).tolist()})
    with pytest.raises(InvalidArgument, match="is there twice, with different values"):
        merged([{"a": [result]}, {"a": [changed]}])
    assert len(merged([{"a": [result]}, {"a": [result]}])["a"]) == 1


def test_a_file_that_other_processes_find_changed_is_refused(here):
    """A job goes to another process with its digests, and has files read anew there."""
    (here / "mine.json").write_text(json.dumps(TABLES))
    job = small(agents=["mine.py:scaled"], worlds=["mine.json"]).jobs[0]
    assert job.run().identity == {**job.run().identity, "world": job.digests[0]}
    (here / "helper_of_mine.py").write_text("SCALE = 3.0\n")
    forget()
    with pytest.raises(InvalidArgument, match="not those here that the sweep was begun with"):
        job.run()
    (here / "helper_of_mine.py").write_text("SCALE = 1.0\n")
    forget()
    job.run()
    (here / "mine.json").write_text(json.dumps(TABLES | {"horizon": 4}))
    with pytest.raises(InvalidArgument, match="not those here that the sweep was begun with"):
        job.run()


def test_several_processes_know_the_same(here):
    changes = {"agents": ["mine.py:scaled"], "seeds": [0, 1]}
    near, far = small(**changes), small(**changes, workers=2)
    assert [run.identity for run in near.results.values()] == [
        run.identity for run in far.results.values()
    ]


def test_a_result_has_the_identity_of_its_job():
    given = {"users": 60, "privacy": tacit.NonPrivate(), "progress": False}
    result = tacit.run("ucbvi", tacit.world(WORLD), **given)
    assert tacit.Result.from_dict(result.to_dict()) == result
    assert result.identity == small().results[0].identity
    assert result.identity["options"] == ""
    assert tacit.run("ucbvi:scale=2.0", WORLD, **given).identity["options"] == "scale=2.0"


def test_functions_of_mine_are_sent_by_value(here):
    """Whoever runs them may have none of my files."""
    sys.path.append(str(here))
    importlib.invalidate_caches()
    job = small(agents=[importlib.import_module("mine").scaled]).jobs[0]
    data, known = _packed(Job.run, job), job.run()
    del sys.modules["mine"]
    forget()
    for file in here.glob("*.py"):
        file.unlink()
    assert _done(data).to_dict() | {"seconds": 0} == known.to_dict() | {"seconds": 0}


def test_what_is_told_of_another_kind_of_run():
    given = {"users": 60, "privacy": tacit.NonPrivate(), "progress": False}
    one, other = (tacit.run(name, WORLD, **given) for name in ("ucbvi", "ucbvi:scale=2.0"))
    more = tacit.run("ucbvi", WORLD, **given | {"users": 70})
    found = merged([{"a": [one, other, more]}])
    assert list(found) == [
        "a, users 60, options as usual",
        "a, users 60, options scale=2.0",
        "a, users 70, options as usual",
    ]
    for pair in ([one, other], [one, more]):
        with pytest.raises(InvalidArgument, match="keeps them apart"):
            plot_results({"a": pair})


def test_functions_of_one_name_and_slots_are_content():
    class Slotted:
        __slots__ = ("size",)

    def of(size):
        made = Slotted()
        made.size = size
        return made

    functions = [lambda x: x + 1, lambda x: x + 2]
    pairs = [functions, [of(1), of(2)], [Fraction(1, 2), Fraction(1, 3)], [date.min, date.max]]
    for one, other in pairs:
        assert world_digest(one) == world_digest(one) != world_digest(other)
