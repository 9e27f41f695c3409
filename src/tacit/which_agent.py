"""Which agent, where none is named: one for what is known of a world, and for a budget.

:data:`RULES` are read from the first to the last, and the first that fits decides. Each says why in
one line. They are measured where they can be: ``docs/algorithms/README.md`` has the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.agent import Agent
from tacit.privacy.arguments import instance_of, whole_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy, PrivacyModel
from tacit.tabular.spec import FiniteSpec

MANY_CELLS = 500
"""States times actions above which transitions are too many to count; measured between 240, where
counting is as good, and 600, where it is not."""

MANY_TRANSITIONS = 1 << 22
"""Counts of transitions that take too long where they have no noise."""

MOST_PLANNED = 4
"""Coordinates of states for which there is a plan on a grid."""

JOINT, PURE, DISTRIBUTED = "joint DP", "pure joint DP", "distributed DP"
LOCAL, LOCAL_PURE, NONE = "local DP", "pure local DP", "no privacy"
MODELS = (JOINT, PURE, LOCAL, LOCAL_PURE, NONE)
"""Kinds of privacy, as far as rules tell them apart."""


@dataclass(frozen=True)
class Rule:
    """An agent, and where it is taken."""

    agent: str  # its name, perhaps with options
    family: str  # of the spec's worlds, in a word or two
    when: str  # which of them, in words; empty for all others
    models: tuple[str, ...]  # kinds of privacy, of :data:`MODELS`
    why: str  # what speaks for it, in words
    fits: Callable[[Any], bool]  # whether a spec is such a one


@dataclass(frozen=True)
class Chosen:
    """An agent's name, and why it was chosen, in one line."""

    agent: str
    why: str


def _tabular(spec: Any) -> bool:
    return isinstance(spec, FiniteSpec) and not _linear(spec) and not _mixture(spec)


def _many(spec: Any) -> bool:
    """Too many transitions to count, or actions that not all states allow."""
    if not _tabular(spec):
        return False
    return spec.admissible is not None or spec.states * spec.actions > MANY_CELLS


def _linear(spec: Any) -> bool:
    """With features, and fewer of them than states and actions: others tell nothing."""
    features = hasattr(spec, "features") and hasattr(spec, "states")
    return features and spec.dimension < spec.states * spec.actions


def _shares(spec: Any) -> bool:
    if not _linear(spec) or not spec.nonnegative:
        return False
    return bool(np.abs(spec.features.sum(axis=-1) - 1.0).max() <= 1e-6)


def _mixture(spec: Any) -> bool:
    """With models, and fewer weights than transitions."""
    models = hasattr(spec, "transition_features")
    return models and spec.free < spec.states * spec.actions * (spec.states - 1)


def _lq(spec: Any) -> bool:
    return hasattr(spec, "control_cost")


def _box(spec: Any) -> bool:
    return hasattr(spec, "lows") and hasattr(spec, "reward_range")


def _smooth(spec: Any) -> bool:
    """Of smooth moves, in coordinates few enough for a grid."""
    return _box(spec) and hasattr(spec, "pushes") and spec.dimension <= MOST_PLANNED


def _vectors(spec: Any) -> bool:
    """With actions that are vectors."""
    return _box(spec) and spec.action_box is not None


RULES = (
    Rule(
        "policy_improvement",
        "finite",
        f"states allow some actions only, or there are more than {MANY_CELLS} states times actions",
        (JOINT,),
        "returns are asked for, because transitions are too many to count",
        _many,
    ),
    Rule(
        "policy_improvement",
        "finite",
        "states allow some actions only, or there are more than 4 million transitions",
        (NONE,),
        "returns are asked for, because transitions are too many to keep",
        lambda spec: (
            _tabular(spec)
            and (spec.admissible is not None or spec.states**2 * spec.actions > MANY_TRANSITIONS)
        ),
    ),
    Rule(
        "concurrent_psrl",
        "finite",
        "",
        (JOINT, PURE, DISTRIBUTED),
        "most users are served by what is known, so it needs the fewest users under joint DP",
        lambda spec: _tabular(spec) and spec.admissible is None,
    ),
    Rule(
        "ucbvi",
        "finite",
        "",
        (LOCAL, LOCAL_PURE, NONE),
        "its counts can be added up from devices, and without noise its optimism finds the "
        "optimum with the fewest users",
        lambda spec: _tabular(spec) and spec.admissible is None,
    ),
    Rule(
        "linear_posterior",
        "linear",
        "features are shares of factors",
        (JOINT, DISTRIBUTED),
        "it asks for no Gram matrix and plans by a posterior, so it needs the fewest users",
        _shares,
    ),
    Rule(
        "lsvi_ucb",
        "linear",
        "",
        MODELS,
        "it takes any features and any model of privacy",
        _linear,
    ),
    Rule(
        "linopt_vi",
        "mixture",
        "",
        MODELS,
        "all transitions tell about the weights, and it takes any model of privacy",
        _mixture,
    ),
    Rule(
        "certainty_equivalence",
        "linear-quadratic",
        "",
        (JOINT, LOCAL, NONE),
        "it loses the least of our agents for linear systems",
        _lq,
    ),
    Rule(
        "actor_critic",
        "continuous",
        "actions are vectors",
        (JOINT, LOCAL, NONE),
        "its policies draw vectors, and no other agent's do",
        _vectors,
    ),
    Rule(
        "model_posterior",
        "continuous",
        f"states move smoothly, in at most {MOST_PLANNED} coordinates",
        (JOINT, NONE),
        "one model of moves serves every plan and users follow the plan, so it needs the fewest "
        "users",
        _smooth,
    ),
    Rule(
        "fitted_functional_q",
        "continuous",
        "",
        (JOINT, NONE),
        "it ends highest of our agents; users are a batch that is served at random, and "
        "serve=most serves most of them by what was learnt",
        _box,
    ),
    Rule(
        "fitted_functional_q:serve=all",
        "continuous",
        "",
        (LOCAL,),
        "devices report once, and with serve=all it needs no more",
        _box,
    ),
)


def choose(spec: Any, users: int, privacy: Privacy) -> Chosen:
    """The agent for a world of which ``spec`` is known, so many users and a budget, and why.

    >>> from tacit import JointDP, LocalDP, tabular
    >>> spec = tabular.riverswim().spec
    >>> [choose(spec, 1000, privacy).agent for privacy in (JointDP(1.0, 1e-6), LocalDP(1.0, 0.0))]
    ['concurrent_psrl', 'ucbvi']

    Raises:
        InvalidArgument: No agent fits; the message says which models there are for such a world.
    """
    instance_of("privacy", privacy, PrivacyModel)
    users, kind = whole_number("users", users), _kind(privacy)
    fitting = [rule for rule in RULES if rule.fits(spec)]
    if not fitting:
        raise InvalidArgument(
            f"spec is {type(spec).__name__}, of no family of ours: name an agent for it"
        )
    for rule in fitting:
        if kind in rule.models:
            return Chosen(rule.agent, _why(rule, users, privacy, kind))
    taken = [model for model in MODELS if any(model in rule.models for rule in fitting)]
    raise InvalidArgument(
        f"no agent fits: {_world(fitting[0])} and {kind}, but there are agents for "
        f"{' and '.join(taken)}; or name one"
    )


def agent(spec: Any, users: int, privacy: Privacy, **options: Any) -> Agent:
    """An agent for what is known and a budget, by the first of :data:`RULES` that fits.

    ``chosen`` says why; ``docs/algorithms/README.md`` has the rules.

    ``options`` are those of serving (:func:`tacit.make_agent`), and of the agent that is
    chosen.
    """
    from tacit.registry import agent_entry, choose_agent

    chosen = choose(spec, users, privacy)
    found = choose_agent(chosen.agent)
    make = agent_entry(chosen.agent.partition(":")[0]).make
    made: Agent = make(spec, users=users, privacy=privacy, **{**found.options, **options})
    made.chosen = f"{chosen.agent}: {chosen.why}"
    return made


def _kind(privacy: Privacy) -> str:
    if not privacy.private:
        return NONE
    if privacy.local:
        return LOCAL_PURE if privacy.needs_l1 else LOCAL
    if privacy.devices_add:
        return DISTRIBUTED
    return PURE if privacy.pure else JOINT


def _world(rule: Rule) -> str:
    return f"{rule.family} world{f' ({rule.when})' if rule.when else ''}"


def _why(rule: Rule, users: int, privacy: Privacy, kind: str) -> str:
    from tacit.simulation.plan import fewest_users

    why = f"{_world(rule)}, {kind}: {rule.why}"
    least = fewest_users(privacy)
    if least is not None and users < least:
        why += (
            f". But {users:,} {'user is' if users == 1 else 'users are'} too few for any private "
            f"method at this budget, which takes {least:,} at least"
        )
    return why


def rules_table() -> str:
    """All rules, in Markdown, as the documentation shows them."""
    lines = ["| world | which | privacy | agent | why |", "|---|---|---|---|---|"]
    for rule in RULES:
        models = "any" if rule.models == MODELS else ", ".join(rule.models)
        cells = rule.family, rule.when or "all others", models, f"`{rule.agent}`", rule.why
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


_TEXT = "\n".join(
    f"    {_world(rule)}, {'any' if rule.models == MODELS else ', '.join(rule.models)}:\n"
    f"        {rule.agent}: {rule.why}"
    for rule in RULES
)
agent.__doc__ = f"{agent.__doc__}\nThe first of these that fits decides:\n\n{_TEXT}\n"
