"""Automatic choice of an agent: by what is known of a world, and by the budget.

:data:`RULES` are read from the first to the last, and the first that fits decides. Each says why in
one line. They are measured where they can be: ``docs/algorithms/README.md`` has the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tacit.core.agent import Agent
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy, PrivacyModel
from tacit.privacy.validation import instance_of, whole_number
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


class Rule(NamedTuple):
    """An agent, and where it is taken."""

    agent: str  # its name, perhaps with options
    family: str  # of the spec's worlds, in a word or two
    models: tuple[str, ...]  # kinds of privacy, of :data:`MODELS`
    fits: Callable[[Any], bool]  # whether a spec is such a one
    why: str  # what speaks for it, in words
    when: str = ""  # which worlds of the family, in words; empty for all others

    @property
    def world(self) -> str:
        """The worlds it is for, in words."""
        return f"{self.family} world{f' ({self.when})' if self.when else ''}"


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
    if not _linear(spec) or not spec.nonnegative:
        return False
    return bool(np.abs(spec.features.sum(axis=-1) - 1.0).max() <= 1e-6)


def _mixture(spec: Any) -> bool:
    """With models, and fewer weights than transitions."""
    models = hasattr(spec, "transition_features")
    return models and spec.free < spec.states * spec.actions * (spec.states - 1)


def _box(spec: Any) -> bool:
    return hasattr(spec, "lows") and hasattr(spec, "reward_range")


RULES = (
    Rule(
        "policy_improvement",
        "finite",
        (JOINT,),
        lambda s: _tabular(s) and not (_free(s) and s.states * s.actions <= MANY_CELLS),
        "returns are asked for, because transitions are too many to count",
        f"states allow some actions only, or there are more than {MANY_CELLS} states times actions",
    ),
    Rule(
        "policy_improvement",
        "finite",
        (NONE,),
        lambda s: _tabular(s) and not (_free(s) and s.states**2 * s.actions <= MANY_TRANSITIONS),
        "returns are asked for, because transitions are too many to keep",
        "states allow some actions only, or there are more than 4 million transitions",
    ),
    Rule(
        "concurrent_psrl",
        "finite",
        (JOINT, PURE, DISTRIBUTED),
        _free,
        "most users are served by what is known, so it needs the fewest users under joint DP",
    ),
    Rule(
        "ucbvi",
        "finite",
        (LOCAL, LOCAL_PURE, NONE),
        _free,
        "its counts can be added up from devices, and without noise its optimism finds the "
        "optimum with the fewest users",
    ),
    Rule(
        "linear_posterior",
        "linear",
        (JOINT, DISTRIBUTED),
        _shares,
        "it asks for no Gram matrix and plans by a posterior, so it needs the fewest users",
        "features are shares of factors",
    ),
    Rule("lsvi_ucb", "linear", MODELS, _linear, "it takes any features and any model of privacy"),
    Rule(
        "linopt_vi",
        "mixture",
        MODELS,
        _mixture,
        "all transitions tell about the weights, and it takes any model of privacy",
    ),
    Rule(
        "certainty_equivalence",
        "linear-quadratic",
        (JOINT, LOCAL, NONE),
        lambda spec: hasattr(spec, "control_cost"),
        "it loses the least of our agents for linear systems",
    ),
    Rule(
        "actor_critic",
        "continuous",
        (JOINT, LOCAL, NONE),
        lambda spec: _box(spec) and spec.action_box is not None,
        "its policies draw vectors, and no other agent's do",
        "actions are vectors",
    ),
    Rule(
        "model_posterior",
        "continuous",
        (JOINT, NONE),
        lambda s: _box(s) and hasattr(s, "pushes") and s.dimension <= MOST_PLANNED,
        "one model of moves serves every plan and users follow the plan, so it needs the fewest "
        "users",
        f"states move smoothly, in at most {MOST_PLANNED} coordinates",
    ),
    Rule(
        "fitted_functional_q",
        "continuous",
        (JOINT, NONE),
        _box,
        "it ends highest of our agents; users are a batch that is served at random, and "
        "serve=most serves most of them by what was learnt",
    ),
    Rule(
        "fitted_functional_q:serve=all",
        "continuous",
        (LOCAL,),
        _box,
        "devices report once, and with serve=all it needs no more",
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
    from tacit.simulation.plan import fewest_users

    instance_of("privacy", privacy, PrivacyModel)
    users, kind = whole_number("users", users), _kind(privacy)
    fitting = [rule for rule in RULES if rule.fits(spec)]
    if not fitting:
        raise InvalidArgument(
            f"spec is {type(spec).__name__}, of no family of ours: name an agent for it"
        )
    for rule in fitting:
        if kind in rule.models:
            why, least = f"{rule.world}, {kind}: {rule.why}", fewest_users(privacy)
            if least is not None and users < least:
                why += (
                    f". But {users:,} {'user is' if users == 1 else 'users are'} too few for any "
                    f"private method at this budget, which takes {least:,} at least"
                )
            return Chosen(rule.agent, why)
    taken = [model for model in MODELS if any(model in rule.models for rule in fitting)]
    raise InvalidArgument(
        f"no agent fits: {fitting[0].world} and {kind}, but there are agents for "
        f"{' and '.join(taken)}; or name one"
    )


def _kind(privacy: Privacy) -> str:
    if not privacy.private:
        return NONE
    if privacy.local:
        return LOCAL_PURE if privacy.needs_l1 else LOCAL
    if privacy.devices_add:
        return DISTRIBUTED
    return PURE if privacy.pure else JOINT


def agent(spec: Any, users: int, privacy: Privacy, **options: Any) -> Agent:
    """An agent for what is known and a budget, by the first of :data:`RULES` that fits.

    ``chosen`` says why; ``docs/algorithms/README.md`` has the rules.

    Args:
        spec: What is known of the world.
        users: How many users are declared.
        privacy: The trust model with its budget.
        **options: Those of :func:`tacit.make_agent`, and of the agent that is chosen.
    """
    from tacit.registry import choose_agent

    chosen = choose(spec, users, privacy)
    found = choose_agent(chosen.agent)
    made: Agent = found.make(spec, users, privacy, **{**found.options, **options})
    made.chosen = f"{chosen.agent}: {chosen.why}"
    return made


def rules_table() -> str:
    """All rules, in Markdown, as the documentation shows them."""
    lines = ["| world | which | privacy | agent | why |", "|---|---|---|---|---|"]
    for rule in RULES:
        models = "any" if rule.models == MODELS else ", ".join(rule.models)
        cells = rule.family, rule.when or "all others", models, f"`{rule.agent}`", rule.why
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


agent.__doc__ = f"{agent.__doc__}\nThe first of these that fits decides:\n\n{rules_table()}\n"
