"""Which agent is taken where none is named: every rule, what is refused, and what is said."""

from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit import InvalidArgument, JointDP, LocalDP, NonPrivate
from tacit.auto import MANY_CELLS, MODELS, RULES, agent, choose
from tacit.registry import BUILT_IN, agent_entry, build_world, choose_agent
from tacit.tabular.spec import FiniteSpec
from tests.tabular.families import MIXTURE

JOINT, PURE, NONE = JointDP(1.0, 1e-6), JointDP(1.0, 0.0), NonPrivate()
LOCAL, LOCAL_PURE = LocalDP(4.0, 1e-6), LocalDP(4.0, 0.0)
SPARSE = "research.worlds.sparse_mdp:states=20"
SMALL = "riverswim:states=3,horizon=4"


def taken(world, privacy):
    spec = world if not isinstance(world, str) else build_world(world).spec
    return choose(spec, privacy).agent


@pytest.mark.parametrize(
    ("world", "privacy", "name"),
    [
        ("micro_randomised:decisions=20", JOINT, "action_centred"),
        (SMALL, JOINT, "concurrent_psrl"),
        (SMALL, PURE, "concurrent_psrl"),
        (SMALL, LOCAL, "ucbvi"),
        (SMALL, LOCAL_PURE, "ucbvi"),
        (SMALL, NONE, "ucbvi"),
        (SPARSE, JOINT, "policy_improvement"),
        (SPARSE, NONE, "policy_improvement"),
        ("simplex", JOINT, "linear_posterior"),
        ("simplex", PURE, "lsvi_ucb"),
        ("simplex", LOCAL, "lsvi_ucb"),
        ("simplex", NONE, "lsvi_ucb"),
        ("two_state", JOINT, "lsvi_ucb"),
        ("hard_mixture", JOINT, "linopt_vi"),
        ("hard_mixture", NONE, "linopt_vi"),
        ("hard_mixture", LOCAL_PURE, "linopt_vi"),
        ("mixture_of_models", JOINT, "linopt_vi"),
        ("mixture_of_models:known_rewards=false", JOINT, "linopt_vi"),
        ("double_integrator:horizon=5", JOINT, "certainty_equivalence"),
        ("double_integrator:horizon=5", LOCAL, "certainty_equivalence"),
        ("line:horizon=8", JOINT, "fitted_functional_q"),
        ("line:horizon=8", NONE, "fitted_functional_q"),
        ("line:horizon=8", LOCAL, "fitted_functional_q:serve=all"),
    ],
)
def test_each_rule_takes_an_agent_that_takes_the_budget(world, privacy, name):
    spec = build_world(world).spec
    made = agent(spec, 200, privacy, **({"noise_seed": 0} if privacy.private else {}))
    assert made.chosen.startswith(f"{name}: ")
    assert "\n" not in made.chosen
    assert type(made.algorithm).name == name.partition(":")[0]


def test_many_states_are_not_counted():
    few, many = (tacit.tabular.random_mdp(n, 5, 2, seed=0).spec for n in (MANY_CELLS // 5, 101))
    assert (taken(few, JOINT), taken(many, JOINT)) == ("concurrent_psrl", "policy_improvement")
    # Without noise they are, up to as many as can be kept.
    assert taken(many, NONE) == "ucbvi"
    assert taken(FiniteSpec(716, 25, 20, stationary=True), NONE) == "policy_improvement"
    # Nothing better is known where returns cannot be asked for.
    assert (taken(many, PURE), taken(many, LOCAL)) == ("concurrent_psrl", "ucbvi")


@pytest.mark.parametrize(
    "other", [{"horizon": 19}, {"stationary": False}, {"largest_return": 1.0}, {"states": 26}]
)
def test_few_people_teach_by_their_own_scores(other):
    """Where horizons are long and rewards on the way; fewer than any effect takes are refused."""
    known = {"states": 12, "actions": 2, "horizon": 20, "stationary": True}
    spec, far = FiniteSpec(**known), FiniteSpec(**known | other)
    assert choose(spec, JOINT, 300).agent == "centred_improvement"
    for given in ((far, JOINT, 300), (spec, JOINT, 3000), (spec, PURE, 300), (spec, JOINT)):
        assert choose(*given).agent == "concurrent_psrl"
    with pytest.raises(InvalidArgument, match="28 users teach nothing: about 88 are needed"):
        agent(spec, 28, JOINT)
    assert agent(spec, 60, JOINT, noise_seed=0).why.endswith("about 88 people are needed")
    assert choose_agent("auto").settled(spec, JOINT, 300).text == "centred_improvement"


def test_features_that_tell_nothing_are_ignored():
    world = tacit.tabular.riverswim(3, 4)
    assert taken(tacit.linear.linear_from_tabular(world).spec, JOINT) == "concurrent_psrl"
    mixed = MIXTURE.random(dimension=20)
    assert taken(mixed.spec, JOINT) == "concurrent_psrl"


@pytest.mark.parametrize(
    ("world", "privacy", "words"),
    [
        (SPARSE, LOCAL, "states allow some actions only.* for joint DP and no"),
        (SPARSE, PURE, "pure joint DP, but there are agents for joint DP and"),
        ("dosing", PURE, "linear-quadratic world and pure joint DP, but .* joint DP and local DP"),
        ("line", LOCAL_PURE, "continuous world and pure local DP"),
    ],
)
def test_what_nothing_fits_is_refused(world, privacy, words):
    with pytest.raises(InvalidArgument, match=words):
        choose(build_world(world).spec, privacy)


def test_options_are_passed_on_or_refused():
    spec = build_world(SMALL).spec
    assert agent(spec, 100, NONE, seed=3, scale=2.0).algorithm.options.scale == 2.0
    with pytest.raises(InvalidArgument, match="ConcurrentPSRL has no option 'scale'"):
        agent(spec, 100, JOINT, scale=2.0)


def test_rules_name_agents_and_the_documentation_has_them():
    assert {rule.agent.partition(":")[0] for rule in RULES} <= set(BUILT_IN)
    page = (Path(__file__).parents[1] / "docs" / "algorithms" / "README.md").read_text()
    rows = []
    for rule in RULES:
        models = "any" if rule.models == MODELS else ", ".join(rule.models)
        rows.append(f"| {rule.world} | {models} | `{rule.agent}` | {rule.why} |")
    assert "\n".join(rows) in page


def test_auto_is_a_name_of_the_command_line():
    assert agent_entry("auto").target == "tacit.auto:agent"
    choice = choose_agent("auto:privacy=none")
    assert choice.budget == {"privacy": "none"}
    spec = build_world(SMALL).spec
    settled = choice.settled(spec, NONE)
    assert (settled.text, settled.why) == ("ucbvi:privacy=none", choose(spec, NONE).why)
    assert settled.settled(spec, JOINT) is settled


def test_a_chosen_agent_learns():
    world = build_world("riverswim:states=4,horizon=12")
    made = agent(world.spec, users=20_000, privacy=JointDP(10.0, 1e-6), noise_seed=1)
    result = tacit.run(made, world, seed=1, progress=False)
    assert np.isfinite(result.score)
    assert result.score > 0.9


def test_options_of_a_rule_are_those_of_the_agent():
    """Devices report once: with serve="all", unless the caller says otherwise."""
    spec = tacit.continuous.line(horizon=4).spec
    made = agent(spec, users=30, privacy=LocalDP(4.0, 1e-4), noise_seed=0)
    assert made.algorithm.options.serve == "all"
    assert made.chosen.startswith("fitted_functional_q:serve=all: ")
    with pytest.raises(InvalidArgument, match="a device reports once"):
        agent(spec, users=30, privacy=LocalDP(4.0, 1e-4), serve="later")
    text = choose_agent("auto:ends=true").settled(spec, LocalDP(4.0, 1e-4))
    assert text.options == {"serve": "all", "ends": True}


def test_no_rule_takes_a_weaker_unit():
    """What is protected is a user's whole episode, whatever is chosen."""
    for world in (SMALL, "simplex", "hard_mixture", "dosing", "line:horizon=8"):
        made = agent(build_world(world).spec, 200, JOINT, noise_seed=0)
        assert made.guarantee.unit == "one user's whole episode"
