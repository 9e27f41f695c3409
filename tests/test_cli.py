"""The command line: what it prints, what it refuses, and that runs do not depend on how."""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tacit
from tacit import Guarantee, JointDP, NonPrivate, Relation, registry
from tacit.cli import app as cli
from tacit.cli import doctor
from tacit.finite.policy import Policy
from tacit.simulation.compare import load_results, median, summary
from tacit.simulation.plan import Sizes, plan
from tacit.simulation.result import Result
from tacit.tabular import TabularWorld

BUDGET = ("--epsilon", "1", "--delta", "1e-6")
ROOT = Path(__file__).parents[1]


# A world and an agent whose numbers can be computed by hand.


def two_coins(best: float = 1.0) -> TabularWorld:
    """One toss per user. The second coin always pays; tossing either pays half."""
    world = TabularWorld([[[1.0], [1.0]]], [[0.0, best]], horizon=1, name=f"two_coins:best={best}")
    world.exchangeable_actions = False  # so that the agent below knows which coin is which
    return world


def unknown_optimum() -> TabularWorld:
    class Unknown(TabularWorld):
        optimal_value = math.nan

    return Unknown([[[1.0]]], [[0.5]], horizon=1, name="unknown")


class Scripted:
    """Blocks of 100 users. Tosses either coin until (seed + 1) blocks are through, then the best.

    Its greedy policy is good one block earlier, and with ``never`` the seeds from there on never
    learn.
    """

    noise_std = 7.5
    why = "as scripted"

    def __init__(
        self,
        spec,
        users,
        privacy,
        seed=0,
        noise_seed=None,
        never: int = 1000,
        fail: bool = False,
        refuse: bool = False,
    ):
        self.spec, self.users, self.privacy, self.seed = spec, users, privacy, seed
        self.never, self.fail, self.refuse = never, fail, refuse
        self.simulated = noise_seed is not None
        self.form = "counts"
        self.releases = 0

    def _policy(self, good):
        return Policy.stochastic([[[0.0, 1.0] if good and self.seed < self.never else [0.5, 0.5]]])

    @property
    def policy(self):
        return self._policy(self.releases > self.seed)

    @property
    def greedy_policy(self):
        return self._policy(self.releases >= self.seed)

    @property
    def block_users(self):
        return min(100, self.users - 100 * self.releases)

    @property
    def guarantee(self):
        if isinstance(self.privacy, NonPrivate):
            return None
        return Guarantee(
            model="joint" if isinstance(self.privacy, JointDP) else "local",
            epsilon=self.privacy.epsilon,
            delta=self.privacy.delta,
            mu=None,
            relation=Relation.REPLACE_ONE,
            releases=10,
            mechanism="none at all",
            simulation_only=self.simulated,
        )

    def learn(self, data):
        if self.fail and self.seed == 1:
            raise ZeroDivisionError("made to\nfail")
        if self.refuse and self.seed == 1:
            raise tacit.HorizonExceeded("made to refuse")
        self.releases += 1


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    """The fakes above under names of their own, importable in other processes too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    module = importlib.import_module(Path(__file__).stem)
    for table in ("_AGENTS", "_WORLDS"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    registry.register_agent("scripted", f"{module.__name__}:Scripted")
    registry.register_world("two_coins", f"{module.__name__}:two_coins")
    registry.register_world("unknown", f"{module.__name__}:unknown_optimum")
    return module


def call(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def run(*arguments, world="two_coins", agent="scripted", users="1e4", workers=1):
    options = ("--world", world, "--agent", agent, "--users", users, "--workers", workers)
    return call("run", *options, *arguments)


def content(outcome):
    assert (outcome.exit_code, outcome.stderr) == (0, "")
    return json.loads(outcome.stdout)


def without_times(values):
    return {key: value for key, value in values.items() if key != "seconds"}


# tacit run.


def test_one_object_with_hand_computed_values():
    made = content(run(*BUDGET, "--seeds", 3, "--json"))
    assert list(made) == [
        *("world", "agent", "users", "optimal_value", "baseline_value", "reference_value"),
        *("guarantee", "runs", "users_to_90_median", "greedy_users_to_90_median"),
        *("score_median", "seconds"),
    ]
    # Seed k serves (k + 1) blocks of 100 users at half of the value, and all others well.
    expected = [
        {
            "seed": seed,
            "regret": 0.5 * 100 * (seed + 1),
            "users_to_90": 100 * (seed + 1),
            "greedy_users_to_90": 100 * seed,
            "final_value": 1.0,
            "score": 1.0,
        }
        for seed in range(3)
    ]
    assert made["runs"] == expected
    assert (made["world"], made["agent"]) == ("two_coins:best=1.0", "scripted")
    assert made["users"] == 10_000
    assert isinstance(made["users"], int)
    assert (made["optimal_value"], made["baseline_value"], made["reference_value"]) == (1, 0.5, 0)
    assert made["users_to_90_median"] == 200
    assert made["greedy_users_to_90_median"] == 100
    assert made["score_median"] == 1.0
    assert made["seconds"] > 0
    guarantee = Guarantee.from_dict(made["guarantee"])
    assert (guarantee.model, guarantee.epsilon, guarantee.delta) == ("joint", 1.0, 1e-6)
    assert guarantee.simulation_only
    assert "simulation only" in guarantee.short


def test_what_is_never_reached_counts_as_infinity():
    made = content(run(*BUDGET, "--seeds", 4, "--json", agent="scripted:never=3"))
    assert [r["users_to_90"] for r in made["runs"]] == [100, 200, 300, None]
    assert made["users_to_90_median"] == 250
    assert made["greedy_users_to_90_median"] == 150
    assert [r["score"] for r in made["runs"]] == [1.0, 1.0, 1.0, 0.0]
    made = content(run(*BUDGET, "--seeds", 4, "--json", agent="scripted:never=2"))
    assert made["users_to_90_median"] is None
    assert made["score_median"] == 0.5
    made = content(run(*BUDGET, "--seeds", 1, "--json", agent="scripted:never=0"))
    assert made["users_to_90_median"] is made["runs"][0]["users_to_90"] is None


def test_medians():
    assert median([]) is None
    assert median([None]) is None
    assert median([4, 1, 2]) == 2
    assert isinstance(median([4, 1, 2]), int)
    assert median([1, 2]) == 1.5
    assert median([1, None]) is None
    assert median([0.5, 0.5, None]) == 0.5


def test_a_world_with_nothing_to_gain_has_no_score():
    made = content(run("--privacy", "none", "--json", world="two_coins:best=0"))
    assert made["runs"][0]["score"] is made["score_median"] is None
    assert made["users_to_90_median"] is None


@pytest.mark.parametrize(
    ("arguments", "model"),
    [
        (("--privacy", "local", *BUDGET), "local"),
        (("--privacy", "joint", *BUDGET), "joint"),
        (("--privacy", "none"), None),
        (("--privacy", "none", *BUDGET), None),
    ],
)
def test_privacy_models(arguments, model):
    made = content(run(*arguments, "--json"))
    if model is None:
        assert made["guarantee"] is None
    else:
        assert made["guarantee"]["model"] == model
        assert made["guarantee"]["simulation_only"] is True


def test_an_agents_own_budget_wins():
    made = content(run(*BUDGET, "--json", agent="scripted:epsilon=3"))
    assert (made["guarantee"]["epsilon"], made["guarantee"]["delta"]) == (3.0, 1e-6)
    assert content(run("--json", agent="scripted:privacy=none"))["guarantee"] is None


@pytest.mark.parametrize("users", ["1e3", "1000", "1_000", "1.0e3"])
def test_users_can_be_scientific(users):
    assert content(run(*BUDGET, "--json", users=users))["users"] == 1000


def test_seeds_count_from_the_first():
    made = content(run(*BUDGET, "--seed", 5, "--seeds", 2, "--json"))
    assert [r["seed"] for r in made["runs"]] == [5, 6]
    assert made["runs"] == [
        content(run(*BUDGET, "--seed", seed, "--json"))["runs"][0] for seed in (5, 6)
    ]


def test_people_get_a_table_the_guarantee_and_a_sentence():
    outcome = run(*BUDGET, "--seeds", 2)
    assert (outcome.exit_code, outcome.stderr) == (0, "")
    words = " ".join(outcome.stdout.split())
    assert "scripted on two_coins:best=1.0: 10,000 users" in words
    assert "median 150 50 1" in words
    assert "Simulation only: the noise seed is known, so this protects nobody." in words
    assert "After 150 users, those who come get 90 % of what is possible, for good." in words
    words = " ".join(run("--privacy", "none", users="150").stdout.split())
    assert "Not private: nothing is guaranteed" in words
    assert "the run is too short" in words
    words = " ".join(run("--privacy", "none", agent="scripted:never=0").stdout.split())
    assert "10,000 users were not enough" in words
    many = " ".join(run("--privacy", "none", "--seeds", 20, users="3000").stdout.split())
    assert "..." in many


def test_results_are_saved_and_drawn(tmp_path):
    picture, file = tmp_path / "a.png", tmp_path / "a.json"
    for seeds in (1, 2):
        outcome = run(*BUDGET, "--seeds", seeds, "--plot", picture, "--save", file)
        assert outcome.exit_code == 0
        assert str(picture) in outcome.stdout
        assert picture.read_bytes().startswith(b"\x89PNG")
        picture.unlink()
        results = load_results(file)["scripted"]
        assert [r.seed for r in results] == list(range(seeds))
        assert all(isinstance(r, Result) for r in results)
        saved = json.loads(file.read_text())
        assert saved["entries"][0]["users_to_90_median"] == median(r.users_to_90 for r in results)
        assert saved["entries"][0]["runs"] == summary(results)["runs"]
    quiet = run(*BUDGET, "--plot", picture, "--json")
    assert json.loads(quiet.stdout)["users"] == 10_000
    for text in ("{", "[]", '{"format": "tacit-runs", "version": 99}'):
        file.write_text(text)
        with pytest.raises(tacit.InvalidArgument, match=r"a\.json"):
            load_results(file)


def test_equal_seeds_give_equal_runs():
    options = {"world": "riverswim:horizon=6,states=4", "agent": "ucbvi", "users": "2e4"}
    several = content(run(*BUDGET, "--seeds", 3, "--json", **options))
    assert len({r["regret"] for r in several["runs"]}) == 3
    again = content(run(*BUDGET, "--seeds", 3, "--json", **options))
    assert without_times(again) == without_times(several)


# Mistakes.

MISTAKES = {
    "unknown world": (("--world", "riverswin"), "did you mean 'riverswim'"),
    "unknown world option": (("--world", "riverswim:x=1"), "has no option 'x'; it takes states=6"),
    "unknown environment": (("--world", "gym:NoSuch-v1"), "no environment 'NoSuch-v1'"),
    "missing file": (("--world", "no/such.toml"), "'no/such.toml': No such file"),
    "no known optimum": (("--world", "unknown"), "has no known optimum"),
    "unknown agent": (("--agent", "script"), "did you mean 'scripted'"),
    "unknown agent option": (("--agent", "scripted:x=1"), "has no option 'x'; it takes never=1000"),
    "wrong agent option": (("--agent", "scripted:never=x"), "must be a whole number"),
    "zero epsilon": (("--epsilon", "0"), "epsilon is 0.0, but must be a positive"),
    "negative epsilon": (("--epsilon", "-1"), "epsilon is -1.0, but must be a positive"),
    "no number": (("--epsilon", "one"), "epsilon is 'one', but must be a number"),
    "wrong delta": (("--delta", "1"), "delta is 1.0, but must be 0, or from"),
    "no users": (("--users", "0"), "users is '0', but must be a whole number from 1"),
    "negative users": (("--users", "-5"), "users is '-5', but must be a whole number from 1"),
    "half a user": (("--users", "1.5"), "users is '1.5', but must be a whole number"),
    "users in words": (("--users", "many"), "users is 'many', but must be a whole number"),
    "too many users": (("--users", "1e30"), "users is '1e30', but must be a whole number"),
    "no seeds": (("--seeds", "0"), "seeds is '0', but must be"),
    "wrong seed": (("--seed", "-1"), "seed is '-1', but must be a whole number from 0"),
    "no workers": (("--workers", "0"), "workers is '0', but must be"),
    "wrong privacy": (("--privacy", "total"), "--privacy is 'total', but must be one of joint"),
    "unknown option": (("--colour", "red"), "No such option: --colour"),
    "no value": (("--plot",), "--plot"),
    "too much": (("more",), "more"),
    "no folder for a plot": (("--plot", "no/such/x.png"), "there is no folder no/such"),
    "another format": (("--plot", "x.pdf"), "--plot is 'x.pdf', but must end in .png"),
    "no folder for a save": (("--save", "no/such/x"), "--save is 'no/such/x', but there is no fo"),
    "a folder as a save": (("--save", "."), "--save is '.', which is a folder"),
}


def one_line(outcome, code=2):
    """The complaint: one line on standard error, nothing on standard output."""
    assert (outcome.exit_code, outcome.stdout) == (code, "")
    line, rest = outcome.stderr.split("\n")
    assert rest == ""
    assert line.startswith("tacit: ")
    assert "Traceback" not in line
    return line


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake):
    arguments, words = MISTAKES[mistake]
    assert words in one_line(run(*BUDGET, *arguments))


def test_a_budget_has_no_default():
    for given, missing in ((("--delta", "1e-6"), "epsilon"), (("--epsilon", "1"), "delta")):
        for model in ("joint", "local"):
            line = one_line(run(*given, "--privacy", model))
            assert f"--{missing} is missing: {model} privacy needs a budget" in line
    assert "--world" in one_line(call("run", "--agent", "scripted"))


def test_unreadable_and_unwritable_files(tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text('{"horizon": 3}')
    assert "describes no world: it must have" in one_line(run(*BUDGET, world=broken))
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    assert "folder.toml': Is a directory" in one_line(run(*BUDGET, world=folder))
    if os.path.isdir("/proc/self"):
        for option in (("--save", "/proc/x"), ("--plot", "/proc/x.png")):
            assert "which cannot be written" in one_line(run(*BUDGET, *option))


def test_files_are_checked_before_anything_is_run():
    line = one_line(run(*BUDGET, "--save", "no/such/x", agent="scripted:fail=true", users="1e12"))
    assert "no folder" in line


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_run_that_fails_is_one_line_too(seeds):
    arguments = (*BUDGET, "--seed", 1, "--seeds", seeds)
    line = one_line(run(*arguments, agent="scripted:fail=true"), code=1)
    assert "ZeroDivisionError: made to fail" in line
    assert "--traceback" in line
    line = one_line(run(*arguments, agent="scripted:refuse=true"))
    assert "made to refuse" in line


def test_a_traceback_can_be_asked_for(capsys):
    options = ("--world", "two_coins", "--agent", "scripted:fail=true", "--privacy", "none")
    outcome = call("--traceback", "run", *options, "--seed", 1)
    assert outcome.exit_code == 1
    assert "Traceback" in outcome.stderr
    assert "in learn" in outcome.stderr


def test_an_interruption(monkeypatch):
    def interrupted(self, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("test_cli").Scripted, "learn", interrupted)
    outcome = run(*BUDGET)
    assert outcome.exit_code == 130
    assert "Traceback" not in outcome.stderr


# tacit compare.


def compare(*arguments):
    fixed = ("--world", "two_coins", "--users", "1e4", "--workers", 1, "--seeds", 2)
    return call("compare", *fixed, *arguments)


def test_agents_times_budgets(tmp_path):
    picture, file = tmp_path / "a.png", tmp_path / "a.json"
    made = content(
        compare(
            *("--agent", "scripted", "--agent", "scripted:never=1", "--agent"),
            *("scripted:privacy=none", "--agent", "scripted:privacy=local,epsilon=4"),
            *("--epsilon", "0.1", "--epsilon", "1", "--delta", "1e-6"),
            *("--plot", picture, "--save", file, "--json"),
        )
    )
    assert list(made) == [
        *("world", "users", "optimal_value", "baseline_value", "reference_value"),
        *("entries", "seconds"),
    ]
    seen = {
        e["label"]: (e["privacy"]["model"], e["privacy"]["epsilon"], e["users_to_90_median"])
        for e in made["entries"]
    }
    assert seen == {
        "scripted, epsilon 0.1": ("joint", 0.1, 150),
        "scripted, epsilon 1": ("joint", 1.0, 150),
        "scripted:never=1, epsilon 0.1": ("joint", 0.1, None),
        "scripted:never=1, epsilon 1": ("joint", 1.0, None),
        "scripted:privacy=none": ("none", None, 150),
        "scripted:privacy=local,epsilon=4": ("local", 4.0, 150),
    }
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert {label: len(runs) for label, runs in load_results(file).items()} == dict.fromkeys(
        seen, 2
    )
    single = content(run(*BUDGET, "--seeds", 2, "--json"))
    again = next(e for e in made["entries"] if e["label"] == "scripted, epsilon 1")
    assert again["runs"] == single["runs"]


def test_a_comparison_for_people():
    outcome = compare("--agent", "scripted", "--agent", "scripted:privacy=none", *BUDGET)
    assert outcome.exit_code == 0
    words = " ".join(outcome.stdout.split())
    assert "two_coins:best=1.0: 10,000 users, median of 2 runs, optimal value 1," in words
    assert "(1, 1e-06)-JDP" in words
    assert "Simulation only" in words


def test_comparisons_refuse_before_they_run():
    twice = compare("--agent", "scripted:fail=true", "--agent", "scripted:fail=true", *BUDGET)
    assert "'scripted:fail=true' is there twice" in one_line(twice)
    late = compare("--agent", "scripted:fail=true", "--agent", "nobody", *BUDGET)
    assert "agent is 'nobody'" in one_line(late)
    assert "--epsilon is missing" in one_line(compare("--agent", "scripted", "--delta", "0.1"))
    eight = [part for e in range(1, 9) for part in ("--epsilon", e)]
    many = compare("--agent", "scripted", *eight, "--delta", "1e-6", "--plot", "x.png")
    assert "--plot shows at most 7 lines, but 8 are compared" in one_line(many)


# tacit plan.


def planned(*arguments, agent="scripted"):
    return call("plan", "--agent", agent, *arguments)


def test_a_plan_tries_more_users_until_it_is_enough():
    made = content(planned("--world", "two_coins", *BUDGET, "--seeds", 3, "--json"))
    assert made["users"] == 10_000
    assert made["users_to_90_median"] == 200
    assert made["users_to_90_range"] == [100, 300]
    assert made["non_private_users_to_90_median"] == 200
    assert made["price"] == 1.0
    assert made["noise_std"] == 7.5
    assert made["why"] == "as scripted"
    assert made["settled"] is True
    assert made["privacy"] == {"model": "joint", "epsilon": 1.0, "delta": 1e-6}
    # Seeds 20 to 22 take 2,100 to 2,300 users, so 10,000 are too few to be sure.
    late = ("--world", "two_coins", *BUDGET, "--seed", 20, "--seeds", 3, "--json")
    assert content(planned(*late))["users"] == 100_000
    short = content(planned(*late, "--most", "1e4"))
    assert (short["users"], short["settled"]) == (10_000, False)
    given = content(planned(*late, "--users", "2000"))
    assert (given["users"], given["users_to_90_median"]) == (2000, None)


def test_a_plan_from_sizes_alone():
    sizes = ("--states", 4, "--actions", 3, "--horizon", 5)
    made = content(
        planned(*sizes, "--epsilon", 10, "--delta", "1e-3", "--seeds", 2, "--json", agent="ucbvi")
    )
    assert made["world"] == "random_mdp:states=4,actions=3,horizon=5"
    assert made["random_worlds"] is True
    assert made["noise_std"] > 0
    assert made["releases"] >= 1
    assert made["users_to_90_median"] is not None
    words = " ".join(
        planned(*sizes, "--privacy", "none", "--seeds", 1, agent="ucbvi").stdout.split()
    )
    assert "random worlds of your sizes" in words


def test_more_budget_needs_fewer_users():
    needed = [
        plan(
            registry.build_world("riverswim:states=4,horizon=8"),
            registry.choose_agent("ucbvi"),
            JointDP(epsilon, 1e-6),
            10**7,
            seeds=range(3),
            progress=False,
        )
        for epsilon in (0.1, 10.0)
    ]
    assert needed[0].noise_std > 10 * needed[1].noise_std
    assert needed[0].users_to_90 > needed[1].users_to_90
    assert needed[0].price > needed[1].price


def test_plans_for_people_say_what_is_uncertain():
    words = " ".join(planned("--world", "two_coins", *BUDGET).stdout.split())
    assert "users to 90 %, median of 5 runs 300" in words
    assert "noise of a count, standard deviation 7.5" in words
    assert "Chosen: as scripted." in words
    words = " ".join(planned("--world", "two_coins", *BUDGET, "--users", 1000).stdout.split())
    assert "the number is uncertain" in words
    never = planned("--world", "two_coins", *BUDGET, "--users", 1000, agent="scripted:never=0")
    assert "1,000 users are not enough" in " ".join(never.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give either --world, or all of --states"),
        (("--states", 3), "give either --world, or all of --states"),
        (("--world", "two_coins", "--states", 3), "give either --world, or all"),
        (("--states", "x", "--actions", 2, "--horizon", 2), "states is 'x', but must be"),
        (("--world", "unknown"), "no known optimum"),
        (("--world", "two_coins", "--users", 0), "users is '0'"),
        (("--world", "two_coins", "--most", 0), "most is '0'"),
    ],
)
def test_plans_refuse_what_makes_no_sense(arguments, words):
    assert words in one_line(planned(*arguments, *BUDGET))


def test_sizes_name_their_worlds():
    sizes = Sizes(3, 2, 4)
    assert sizes.world(7).name == f"{sizes.name},seed=7"


# tacit list, show, doctor, version.


def test_list_names_everything():
    made = content(call("list", "--json"))
    names = {kind: {entry["name"] for entry in made[kind]} for kind in ("worlds", "agents")}
    assert names["worlds"] >= {"riverswim", "grid", "deep_sea", "random_mdp", "health_coach"}
    assert names["agents"] >= {"ucbvi", "ucbpo", "pucb", "ldpob", "scripted"}
    riverswim = next(entry for entry in made["worlds"] if entry["name"] == "riverswim")
    assert riverswim["options"][0] == {
        "name": "states",
        "kind": "a whole number",
        "required": False,
        "default": "6",
    }
    words = call("list").stdout
    assert "riverswim" in words
    assert "states=6" in words


def test_what_cannot_be_imported_does_not_hide_the_others():
    registry.register_agent("lost", "no.such.module:Agent")
    made = content(call("list", "--json"))
    lost = next(entry for entry in made["agents"] if entry["name"] == "lost")
    assert "cannot be imported" in lost["summary"]


def test_show_a_world():
    made = content(call("show", "world", "riverswim:states=8", "--json"))
    assert (made["states"], made["actions"], made["horizon"]) == (8, 2, 20)
    assert made["optimal_value"] == registry.build_world("riverswim:states=8").optimal_value
    words = call("show", "world", "riverswim").stdout
    assert "Actions:" in words
    assert "3.0645" in words
    assert "``" not in words
    assert "optimal_value" not in content(call("show", "world", "random_mdp", "--json"))
    assert "must be given" in call("show", "world", "random_mdp").stdout
    assert "horizon" in call("show", "world", "gym").stdout
    assert content(call("show", "world", "unknown", "--json"))["optimal_value"] is None


def test_show_a_world_of_a_file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"transitions": [[[1.0]]], "rewards": [[0.5]], "horizon": 2}')
    assert content(call("show", "world", path, "--json"))["optimal_value"] == 1.0
    assert "optimal value" in call("show", "world", path).stdout


def test_show_an_agent():
    made = content(call("show", "agent", "scripted", "--json"))
    assert [option["name"] for option in made["options"]] == ["never", "fail", "refuse"]
    words = call("show", "agent", "ucbvi").stdout
    assert "stationary" in words
    assert "true or false" in words
    assert "agent is 'nobody'" in one_line(call("show", "agent", "nobody"))
    assert "world is 'nowhere'" in one_line(call("show", "world", "nowhere"))
    assert "must be one of world, agent" in one_line(call("show", "thing", "x"))


def test_the_doctor_finds_this_machine_well():
    made = content(call("doctor", "--json"))
    states = {check["name"]: check["state"] for check in made["checks"]}
    assert made["healthy"] is True
    assert {"numpy", "compiler cache", "plots", "environments", "jax", "opendp"} <= set(states)
    assert "failed" not in states.values()


def test_the_doctor_says_what_is_broken(monkeypatch):
    def broken():
        raise RuntimeError("no paper left")

    monkeypatch.setattr(doctor, "_CHECKS", {"plots": broken})
    monkeypatch.setattr(doctor, "REQUIRED", ("numpy", "no-such-package"))
    outcome = call("doctor")
    assert outcome.exit_code == 1
    assert "no paper left" in outcome.stdout
    assert "Broken: no-such-package, plots." in " ".join(outcome.stdout.split())
    made = json.loads(call("doctor", "--json").stdout)
    assert made["healthy"] is False


def test_the_doctor_tells_what_is_optional_from_what_is_broken(monkeypatch):
    monkeypatch.setattr(doctor, "_CHECKS", {})
    monkeypatch.setattr(doctor, "OPTIONAL", {"no-such": ("no_such", "for nothing")})
    checks = doctor.examine()
    assert doctor.healthy(checks)
    assert (checks[-1].name, checks[-1].state) == ("no-such", "missing")


def test_version_and_help():
    for arguments in (("version",), ("--version",)):
        assert call(*arguments).stdout == f"tacit {tacit.__version__}\n"
    assert "Commands" in call().stdout
    for command in ("run", "compare", "plan", "list", "show", "doctor", "version"):
        outcome = call(command, "--help")
        assert outcome.exit_code == 0
        assert "Example" in outcome.stdout
        assert f"tacit {command}" in outcome.stdout
    assert "Did you mean 'run'" in one_line(call("runn"))


# As a program.


def program(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "tacit.cli.app", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def test_the_program_prints_json_and_runs_do_not_depend_on_the_workers():
    options = ("--world", "riverswim:horizon=6,states=4", "--agent", "ucbvi", "--users", "2e4")
    arguments = ("run", *options, *BUDGET, "--seeds", "3", "--json")
    made = program(*arguments, "--workers", "2")
    assert (made.returncode, made.stderr) == (0, "")
    alone = content(call(*arguments, "--workers", 1))
    assert without_times(json.loads(made.stdout)) == without_times(alone)


def test_the_program_refuses_in_one_line():
    made = program("run", "--world", "riverswim", "--agent", "ucbvi", "--epsilon", "1")
    assert (made.returncode, made.stdout) == (2, "")
    assert made.stderr.startswith("tacit: --delta is missing")
    assert made.stderr.count("\n") == 1


def test_a_reader_may_leave_early():
    command = f"{sys.executable} -m tacit.cli.app list | true"
    made = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert made.stderr == ""


SLOW = """
import os, time
from tacit.tabular.ucbvi import UCBVI

class Slow(UCBVI):
    "Says that it has begun, and takes its time."
    def learn(self, data):
        open(os.environ["TACIT_TEST_MARK"], "w").close()
        time.sleep(100)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupted_program_ends_with_130(tmp_path, workers):
    (tmp_path / "slow_agent.py").write_text(SLOW)
    mark = tmp_path / "mark"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tacit.cli.app", "run", "--world", "riverswim", *BUDGET),
            *("--agent", "slow_agent.Slow", "--seeds", "3", "--workers", workers),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TACIT_TEST_MARK": str(mark)},
        start_new_session=True,
    )
    while not mark.exists():
        assert process.poll() is None
        time.sleep(0.05)
    # As a terminal does it: the program and its workers all hear of Ctrl-C.
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, "")
    assert "Traceback" not in stderr


def test_help_loads_nothing_slow():
    heavy = ("numba", "matplotlib", "gymnasium", "scipy.stats", "scipy.optimize", "jax")
    code = (
        "import sys\nfrom tacit.cli.app import app\n"
        "app(['--help'], standalone_mode=False)\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.splitlines()[-1] == "[]"


def test_the_entry_point_exists():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["tacit"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


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


# Exact noise.


@pytest.mark.parametrize(
    ("arguments", "agent", "sampler"),
    [
        ((), "ucbvi", "floating-point"),
        (("--sampler", "exact"), "ucbvi", "exact"),
        ((), "ucbvi:sampler=exact", "exact"),
        (("--sampler", "exact"), "ucbvi:sampler=floating-point", "floating-point"),
        (("--sampler", "exact", "--privacy", "local"), "ucbvi", "exact"),
    ],
)
def test_noise_is_drawn_as_asked(arguments, agent, sampler):
    made = content(run(*BUDGET, *arguments, "--json", agent=agent, world="riverswim", users=500))
    assert made["guarantee"]["sampler"] == sampler
    assert ("discrete Gaussian" in made["guarantee"]["mechanism"]) == (sampler == "exact")
    assert (made["guarantee"]["mu"] is None) == (sampler == "exact")


def test_exact_noise_shows_wherever_privacy_does():
    agents = ("--agent", "ucbvi", "--agent", "ucbvi:sampler=exact", "--agent", "ucbvi:privacy=none")
    shared = (*BUDGET, "--world", "riverswim", "--users", 500, "--seeds", 1, "--workers", 1)
    made = content(call("compare", *agents, *shared, "--json"))
    assert [entry["privacy"].get("sampler") for entry in made["entries"]] == [None, "exact", None]
    shown = " ".join(call("compare", *agents, *shared).stdout.split())
    assert "(sampler=exact): the noise of ucbvi:sampler=exact. Simulation only" in shown
    assert "whole numbers" not in call("compare", *agents[:2], *shared).stdout
    exact = ("--agent", "ucbvi", *BUDGET, "--world", "riverswim", "--users", 500, "--seeds", 1)
    made = content(call("plan", *exact, "--sampler", "exact", "--json"))
    assert made["privacy"]["sampler"] == "exact"
    shown = " ".join(call("plan", *exact, "--sampler", "exact").stdout.split())
    assert "delta 1e-06, exact noise" in shown
    # Without privacy there is no noise to be exact.
    assert content(run("--privacy", "none", "--sampler", "exact", "--json"))["guarantee"] is None


def test_another_sampler_is_refused():
    for refused in (
        run(*BUDGET, "--sampler", "discrete"),
        run(*BUDGET, agent="ucbvi:sampler=discrete"),
        run("--privacy", "none", "--sampler", "discrete"),
    ):
        assert "floating-point" in one_line(refused)
