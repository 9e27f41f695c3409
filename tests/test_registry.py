"""Names of worlds and agents: what they stand for, and what is said about wrong ones."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, Literal

import pytest

from tacit import InvalidArgument, JointDP, NonPrivate, registry
from tacit.registry import NamedMaker, agent_entry, build_world, choose_agent, number, world_entry
from tacit.simulation.run import noise_seed
from tacit.tabular.spec import FiniteSpec
from tests.refusals import refusals


class Base:
    """The options of a base class.

    More about it.

    >>> 1 + 1
    2
    """

    def __init__(
        self,
        spec: Any,
        users: int,
        privacy: Any,
        *,
        schedule: str | NamedMaker = "auto",
        scale: float = 1.0,
        rounds: int | None = None,
        loud: bool = False,
        kind: Literal["soft", "hard"] = "soft",
        span: tuple[float, float] | None = None,
        entry: NamedMaker = NamedMaker("a", "b"),  # noqa: B008
        unknown: NotImportedAnywhere = 3,  # noqa: F821
        seed: int = 0,
        noise_seed: int | None = None,
        store: str = "",
    ) -> None:
        self.given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}

    def learn(self, data: Any) -> None:
        """What makes it an agent."""


@pytest.fixture
def fake(monkeypatch):
    """This module's agents under names of their own."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    module = importlib.import_module(Path(__file__).stem)
    monkeypatch.setitem(registry.BUILT_IN, "fake", f"{module.__name__}:Base")
    return module


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("riverswim", "riverswim:states=6,horizon=20"),
        (" riverswim:horizon=5 , states=4 ", "riverswim:states=4,horizon=5"),
        ("riverswim:horizon=1e1", "riverswim:states=6,horizon=10"),
        ("deep_sea:slip=true,depth=4", "deep_sea:depth=4,slip=True"),
        ("health_coach", "health_coach"),
        (
            "random_mdp:states=5,actions=3,horizon=4,seed=2",
            "random_mdp:states=5,actions=3,horizon=4,seed=2",
        ),
        (
            "gym:FrozenLake-v1,horizon=9,is_slippery=false",
            "gym:FrozenLake-v1,horizon=9,is_slippery=false",
        ),
        ("tacit.tabular.worlds.grid:side=3", "grid:side=3,horizon=20"),
    ],
)
def test_a_text_builds_its_world_and_the_worlds_name_builds_it_again(text, name):
    world = build_world(text)
    assert world.name == name
    again = build_world(world.name)
    assert (again.name, again.optimal_value) == (name, world.optimal_value)


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in registry.worlds() if name != "random_mdp"),
        "deep_sea:slip=true",
        "random_mdp:states=8,actions=3,horizon=6,seed=1",
        "simplex:dimension=4,states=8,stationary=false,seed=3",
        "hard_mixture:dimension=3,horizon=4,per_step=true,gap=0.1,seed=2",
        "mixture_of_models:dimension=3,states=6,seed=2,known_rewards=false",
        "micro_randomised:decisions=20,effect=0.1",
    ],
)
def test_a_name_says_all_of_a_world_and_its_values_agree(name):
    world, again = build_world(name), build_world(build_world(name).name)
    assert (again.name, again.spec) == (world.name, world.spec)
    assert again.optimal_value == world.optimal_value > world.baseline_value
    assert again.baseline_value == world.baseline_value >= world.reference_value
    if hasattr(world, "optimal_policy"):
        assert world.value(world.optimal_policy) == pytest.approx(world.optimal_value, rel=1e-12)


def test_files_describe_worlds(tmp_path):
    path = tmp_path / "coins.json"
    path.write_text('{"transitions": [[[1.0], [1.0]]], "rewards": [[0.25, 0.75]], "horizon": 2}')
    world = build_world(str(path))
    assert (world.name, world.optimal_value, world.baseline_value) == ("coins", 1.5, 1.0)
    with pytest.raises(FileNotFoundError):
        build_world(str(tmp_path / "none.toml"))


def test_environments_without_a_table_take_options():
    world = build_world("gym:Blackjack-v1,horizon=5,reward_range=-1:1,evaluation_users=10,sab=true")
    assert ((world.reward_offset, world.reward_scale), world.evaluation_users) == ((-1.0, 2.0), 10)


test_wrong_worlds_are_refused_with_what_is_allowed = refusals(
    lambda text: build_world(text),
    ("riverswin", r"must be one of deep_sea.*did you mean 'riverswim'.*\.toml.*gym:"),
    ("", "world is ''"),
    ("riverswim:", "colon, but no options"),
    ("riverswim:depth=3", r"no option 'depth'; it takes states, horizon$"),
    ("riverswim:state=3", r"no option 'state' \(did you mean 'states'\?\); it takes"),
    ("riverswim:states", "'states' in riverswim:states must be key=value"),
    ("riverswim:=3", "'=3' in riverswim:=3 must be key=value"),
    ("riverswim:states=6,states=7", "must be key=value, and once"),
    ("riverswim:states=six", "states must be an integer .* got 'six'$"),
    ("riverswim:states=6.5", "states must be an integer"),
    ("riverswim:states=1e999999999", "states must be an integer"),
    ("riverswim:states=2", "states must be >= 3"),
    ("deep_sea:slip=1", "slip must be True or False, got 1"),
    ("health_coach:x=1", "no option 'x'; it takes no options"),
    ("random_mdp:states=3", "random_mdp needs actions, horizon, seed; it takes states, act"),
    ("gym:", "colon, but no options"),
    ("gym:horizon=3", "must begin with an id"),
    ("gym:NoSuch-v1", "no environment 'NoSuch-v1'"),
    ("gym:nosuchmodule:NoSuch-v1", "no environment 'nosuchmodule:NoSuch-v1'"),
    ("gym:FrozenLake-v1,map_name=9x9", "no environment 'FrozenLake-v1'"),
    ("gym:FrozenLake-v1,color=red", "no environment 'FrozenLake-v1'"),
    ("gym:FrozenLake-v1,horizon=long", "horizon must be an integer"),
    ("gym:FrozenLake-v1,reward_range=1:2:3", "reward_range"),
    ("no.such.module", "cannot be imported"),
    ("tacit.tabular.worlds.nothing", "cannot be imported"),
    ("tacit.tabular.worlds._ATTEMPTS", "must be a class or a function"),
)


def test_every_built_in_name_has_a_summary_and_documented_options():
    assert set(registry.worlds()) >= {"riverswim", "grid", "deep_sea", "random_mdp"}
    for entry in [*map(world_entry, registry.worlds()), *map(agent_entry, registry.BUILT_IN)]:
        assert entry.document
        assert ">>>" not in entry.document


def test_options_are_those_of_the_signature_and_values_have_the_types_of_defaults(fake):
    entry = agent_entry("fake")
    names = ["schedule", "scale", "rounds", "loud", "kind", "span", "unknown"]
    assert list(entry.options) == names, "no text can stand for an object"
    assert entry.document == "The options of a base class.\n\nMore about it."
    text = "fake:rounds=1e3,loud=True,kind=hard,span=-1:0.5,scale=2,unknown=4"
    choice = choose_agent(text)
    assert choice.text == text
    assert choice.options == {
        "rounds": 1000,
        "loud": True,
        "kind": "hard",
        "span": (-1.0, 0.5),
        "scale": 2.0,
        "unknown": 4,
    }
    assert isinstance(choice.options["scale"], float)
    assert choose_agent("fake:rounds=none").options == {"rounds": None}


def test_a_value_can_have_options_of_its_own(fake):
    choice = choose_agent("fake:schedule=geometric:growth=1.2,first=10,scale=2,loud=true")
    assert choice.options == {
        "schedule": "geometric:growth=1.2,first=10",
        "scale": 2.0,
        "loud": True,
    }
    with pytest.raises(InvalidArgument, match="no option 'first'"):
        choose_agent("fake:scale=2,first=10")


def test_an_agent_can_have_a_budget_of_its_own(fake):
    choice = choose_agent("fake:privacy=local,epsilon=4,scale=2,delta=1e-7")
    assert choice.budget == {"privacy": "local", "epsilon": 4.0, "delta": 1e-7}
    assert choice.options == {"scale": 2.0}
    assert choose_agent("fake:privacy=none").budget == {"privacy": "none"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fakes", "agent is 'fakes', but must be one of .*fake.*did you mean 'fake'"),
        ("fake:colour=1", "no option 'colour'; it takes schedule, scale"),
        ("fake:users=3", "no option 'users'"),
        ("fake:seed=3", "no option 'seed'"),
        ("fake:store=x", "no option 'store'"),
        ("fake:entry=x", "no option 'entry'"),
        ("fake:scale=inf", "scale is 'inf', but must be a number"),
    ],
)
def test_wrong_agents_are_refused_with_what_is_allowed(fake, text, words):
    with pytest.raises(InvalidArgument, match=words):
        choose_agent(text)


def test_a_choice_builds_the_agent_of_a_seed_with_noise_of_its_own(fake):
    spec = FiniteSpec(states=2, actions=2, horizon=3, stationary=True)
    choice = choose_agent("fake:scale=2")
    agent = choice.build(spec, 100, NonPrivate(), seed=5)
    assert agent.given["seed"] == 5
    assert agent.given["noise_seed"] == noise_seed(5)
    assert (agent.given["users"], agent.given["scale"]) == (100, 2.0)


def test_dotted_paths_need_no_registration(fake):
    assert choose_agent(f"{fake.__name__}.Base:scale=2").target == f"{fake.__name__}:Base"


@pytest.mark.parametrize("name", ["ucbvi", "ucbpo", "concurrent_psrl"])
def test_the_built_in_agents_can_be_made(name):
    assert not {"spec", "users", "privacy", "seed", "noise_seed"} & set(agent_entry(name).options)
    agent = choose_agent(name).build(build_world("riverswim").spec, 1000, JointDP(1.0, 1e-6))
    assert agent.block_users > 0
    if agent.guarantee is not None:
        assert agent.guarantee.simulation_only


def test_numbers_can_be_scientific():
    texts = ("1e6", "1_000", "2.5e3", "7", "1.0", "0.5", "-1e-3")
    assert [number(text) for text in texts] == [10**6, 1000, 2500, 7, 1, 0.5, -0.001]
    assert isinstance(number("1e6"), int)
    for text in ("", "many", "inf", "nan", "1e18", "1e999999999", "9" * 500):
        with pytest.raises(InvalidArgument, match=r"must be a number"):
            number(text)


def test_batch_agents_say_so() -> None:
    batch = {"fitted_functional_q"}
    batch |= {"pessimistic_improvement", "pessimistic_lsvi", "pessimistic_vi"}
    assert {name for name in registry.BUILT_IN if registry.choose_agent(name).offline} == batch
    for serve in ("most", "all"):
        assert not registry.choose_agent(f"fitted_functional_q:serve={serve}").offline


def test_a_plan_of_a_batch_agent_is_the_smallest_batch_whose_policy_is_good() -> None:
    from tacit.continuous import line
    from tacit.simulation.plan import BATCH_USERS, plan

    choice, privacy = registry.choose_agent("fitted_functional_q"), JointDP(10.0, 1e-6)
    made = plan(line(), choice, privacy, seeds=[0], progress=False)
    assert made.offline
    assert made.users_to_90 == made.users
    assert made.results[0].greedy_score > 0.9
    assert made.users in {size * 10**power for power in range(4) for size in BATCH_USERS}
    assert made.to_dict()["score_median"] == made.results[0].score


def test_every_agent_of_a_family_is_in_the_table():
    """An agent is a class whose name on the command line is that of its module."""
    found = {}
    for path in Path(registry.__file__).parent.glob("*/*.py"):
        if re.search(rf'^ +name(: ClassVar\[str\])? = "{path.stem}"$', path.read_text(), re.M):
            module = f"tacit.{path.parent.name}.{path.stem}"
            own = vars(importlib.import_module(module)).values()
            (kind,) = [kind for kind in own if getattr(kind, "name", "") == path.stem]
            found[path.stem] = f"{module}:{kind.__name__}"
    assert found == registry.BUILT_IN
