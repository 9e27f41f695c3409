"""Automatic choice of an agent: by what is known of a world, and by the budget.

The first of :data:`RULES` that fits decides; ``docs/algorithms/README.md`` has the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tacit.core.agent import Agent
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy, PrivacyModel
from tacit.privacy.validation import instance_of
from tacit.tabular.spec import FiniteSpec
from tacit.trial.posterior import few_people

MANY_CELLS = 500
"""States times actions above which transitions are too many to count: 240 are not, 600 are."""

JOINT, PURE, DISTRIBUTED = "joint DP", "pure joint DP", "distributed DP"
LOCAL, LOCAL_PURE, NONE = "local DP", "pure local DP", "no privacy"
MODELS = (JOINT, PURE, LOCAL, LOCAL_PURE, NONE)


class Rule(NamedTuple):
    """An agent, and where it is taken."""

    agent: str  # its name, perhaps with options
    world: str  # the worlds it is for, in words
    models: tuple[str, ...]  # kinds of privacy, of :data:`MODELS`
    fits: Callable[[Any], bool]  # whether a spec is such a one
    why: str  # what speaks for it, in words
    few: bool = False  # whether it is for few users only


class Chosen(NamedTuple):
    """An agent's name, and why it was chosen, in one line."""

    agent: str
    why: str


def _tabular(spec: Any) -> bool:
    return isinstance(spec, FiniteSpec) and not _linear(spec) and not _mixture(spec)


def _free(spec: Any) -> bool:
    """Tabular, and every state allows every action."""
    return _tabular(spec) and spec.admissible is None


def _linear(spec: Any) -> bool:
    """With features, and fewer of them than states and actions: others tell nothing."""
    features = hasattr(spec, "features") and hasattr(spec, "states")
    return features and spec.dimension < spec.states * spec.actions


def _shares(spec: Any) -> bool:
    """Linear, and features are nonnegative and sum to 1."""
    shares = _linear(spec) and spec.nonnegative
    return shares and bool(abs(spec.features.sum(axis=-1) - 1.0).max() <= 1e-6)


def _mixture(spec: Any) -> bool:
    """With models, and fewer weights than transitions."""
    models = hasattr(spec, "transition_features")
    return models and spec.free < spec.states * spec.actions * (spec.states - 1)


RULES = (
    Rule(
        "action_centred",
        "trial (few people, each with many drawn actions)",
        (JOINT, NONE),
        lambda spec: hasattr(spec, "looks"),
        "a person counts for a unit vector however long her history is",
    ),
    Rule(
        "centred_improvement",
        "finite world (>= 20 equal steps, S A <= 50, fewer users than 20 S A / mu)",
        (JOINT,),
        lambda s: _free(s) and s.stationary and s.horizon >= 20 and s.largest_return is None,
        "a person counts for a unit vector: others need more people to learn anything",
        few=True,
    ),
    Rule(
        "policy_improvement",
        f"finite world (states allow some actions only, or > {MANY_CELLS} states times actions)",
        (JOINT,),
        lambda s: _tabular(s) and not (_free(s) and s.states * s.actions <= MANY_CELLS),
        "returns are asked for, because transitions are too many to count",
    ),
    Rule(
        "policy_improvement",
        "finite world (states allow some actions only, or > 4 million transitions)",
        (NONE,),
        lambda s: _tabular(s) and not (_free(s) and s.states**2 * s.actions <= 1 << 22),
        "returns are asked for, because transitions are too many to keep",
    ),
    Rule(
        "concurrent_psrl",
        "finite world",
        (JOINT, PURE, DISTRIBUTED),
        _free,
        "most users are served by what is known, so it needs the fewest users under joint DP",
    ),
    Rule(
        "ucbvi",
        "finite world",
        (LOCAL, LOCAL_PURE, NONE),
        _free,
        "devices can add its counts, and without noise its optimism needs the fewest users",
    ),
    Rule(
        "linear_posterior",
        "linear world (features are shares of factors)",
        (JOINT, DISTRIBUTED),
        _shares,
        "it asks for no Gram matrix and plans by a posterior, so it needs the fewest users",
    ),
    Rule("lsvi_ucb", "linear world", MODELS, _linear, "it takes any features and any privacy"),
    Rule("linopt_vi", "mixture world", MODELS, _mixture, "all transitions tell about the weights"),
    Rule(
        "certainty_equivalence",
        "linear-quadratic world",
        (JOINT, LOCAL, NONE),
        lambda spec: hasattr(spec, "control_cost"),
        "it loses the least of our agents for linear systems",
    ),
    Rule(
        "model_posterior",
        "continuous world (states move smoothly, in at most 4 coordinates)",
        (JOINT, NONE),
        lambda s: hasattr(s, "lows") and hasattr(s, "pushes") and s.dimension <= 4,
        "one model of moves serves every plan, so it needs the fewest users",
    ),
    Rule(
        "fitted_functional_q",
        "continuous world",
        (JOINT, NONE),
        lambda spec: hasattr(spec, "lows"),
        "it ends highest of our agents; users are a batch served at random, unless serve=most",
    ),
    Rule(
        "fitted_functional_q:serve=all",
        "continuous world",
        (LOCAL,),
        lambda spec: hasattr(spec, "lows"),
        "devices report once, and with serve=all it needs no more",
    ),
)


def choose(spec: Any, privacy: Privacy, users: int | None = None) -> Chosen:
    """The agent for what is known of a world, a budget and users (many, by default), and why.

    >>> from tacit import JointDP, LocalDP, tabular
    >>> spec, joint = tabular.riverswim().spec, JointDP(1.0, 1e-6)
    >>> [choose(spec, *given).agent for given in ((joint,), (joint, 300), (LocalDP(1.0, 0.0),))]
    ['concurrent_psrl', 'centred_improvement', 'ucbvi']
    """
    instance_of("privacy", privacy, PrivacyModel)
    kind = _kind(privacy)
    fitting = [rule for rule in RULES if rule.fits(spec)]
    for rule in fitting:
        if kind in rule.models and (not rule.few or few_people(spec, privacy, users)):
            return Chosen(rule.agent, f"{rule.world}, {kind}: {rule.why}")
    taken = [model for model in MODELS if any(model in rule.models for rule in fitting)]
    there = f"agents for {' and '.join(taken)}" if taken else "none for such a spec"
    what = fitting[0].world if fitting else type(spec).__name__
    raise InvalidArgument(f"no agent fits {what} and {kind}, but there are {there}; or name one")


def _kind(privacy: Privacy) -> str:
    if privacy.private and privacy.local:
        return LOCAL_PURE if privacy.needs_l1 else LOCAL
    trusted = DISTRIBUTED if privacy.devices_add else PURE if privacy.pure else JOINT
    return trusted if privacy.private else NONE


def agent(spec: Any, users: int, privacy: Privacy, **options: Any) -> Agent:
    """An agent by the first of :data:`RULES` that fits; its ``chosen`` says why.

    Args:
        spec: What is known of the world.
        users: How many users are declared.
        privacy: The trust model with its budget.
        **options: Those of :func:`tacit.make_agent`, and of the agent that is chosen.
    """
    from tacit.registry import choose_agent

    chosen = choose(spec, privacy, users)
    found = choose_agent(chosen.agent)
    made: Agent = found.make(spec, users, privacy, **{**found.options, **options})
    made.chosen = f"{chosen.agent}: {chosen.why}"
    return made
