"""The fewest users with which any private method can learn.

**The limit.** Take two worlds that an agent cannot tell apart beforehand, in which no policy is
near-optimal twice. Couple users of the two, who follow the same published policies: a user differs
with probability t at most, where t is the largest probability, under any policy, of coming to where
the worlds differ. So about n t of n users differ, and data sets k users apart are k mu-GDP apart
(group privacy). Whoever is right nine times of ten in both needs n t mu >= 2 z, z = 1.2816; under
pure DP n t epsilon >= ln 9. Of M worlds that exclude one another one is mistaken for another with
probability 0.1 / (M - 1) on average, so n mu >= z + z(0.1 / (M - 1)), by the same argument with
t = 1; under pure DP n epsilon >= ln(9 (M - 1)). Both are about what they say, since Bin(n, t) is
taken to be n t.

**Finite worlds.** The labels of actions in a state can be in any order: worlds differ by a swap in
one state where a wrong action loses a fifth of what can be gained, so that no policy is within a
tenth of the best in both; t is how probably any policy comes there. With k such states A^k
labellings exclude one another. Where features are public, labels are not in any order: then the
worlds are any two that call for different policies, and t is 1. The limit ignores that few users
pass by where worlds differ, so agents need more: ten times as many and beyond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.finite.model import FiniteModel, evaluate, optimal, policy_values, uniform_policy
from tacit.finite.policy import Policy
from tacit.finite.world import FiniteWorld
from tacit.privacy.models import Privacy

# Of what can be gained: more than twice the tenth by which a policy may miss the optimum.
_LOST = 0.2
# More than this is not worth the time, in numbers that are read.
_MOST_WORK = 2 * 10**9


@dataclass(frozen=True)
class Limits:
    """How few users could suffice; ``None`` where nothing is known.

    Attributes:
        least: no private method needs fewer, if it is to be right nine times of ten.
        why: which worlds the limit is about, or why there is none.
    """

    least: int | None
    why: str


def fewest_users(privacy: Privacy, reach: float = 1.0, worlds: float = 2.0) -> int | None:
    """Users to tell worlds apart which differ for a user with probability ``reach``, or less.

    1 without privacy; ``None`` for local DP, of which the argument says nothing sharp.

    >>> from tacit import JointDP
    >>> fewest_users(JointDP(1.0, 1e-6)), fewest_users(JointDP(1.0, 0.0))
    (11, 3)
    """
    if not privacy.private:
        return 1
    if privacy.local:
        return None
    wrong = 0.1 / max(worlds - 1.0, 1.0)
    if privacy.pure:
        return math.ceil(math.log(0.9 / wrong) / privacy.epsilon / reach)
    from scipy.special import ndtri

    return math.ceil(float(-ndtri(0.1) - ndtri(wrong)) / privacy.budget.mu / reach)


def limits(world: Any, privacy: Privacy) -> Limits:
    """How few users could suffice in a world at a budget; see the module for the proof.

    >>> from tacit import JointDP, tabular
    >>> limits(tabular.riverswim(), JointDP(1.0, 1e-6)).least
    18
    """
    if not privacy.joint:
        what = "local DP" if privacy.local else "what is not private"
        return Limits(None, f"no limit is known of {what}")
    if hasattr(world.spec, "bounded"):
        words = "two worlds of such vectors that call for different policies"
        return Limits(fewest_users(privacy), words)
    model = getattr(world, "model", None)
    if not isinstance(world, FiniteWorld) or not isinstance(model, FiniteModel):
        return Limits(None, "no limit is known of worlds that are no tables")
    if hasattr(world.spec, "stationary_transitions"):
        words = "two worlds with these features that call for different policies"
        return Limits(fewest_users(privacy), words)
    if model.states**3 * model.actions**2 * model.horizon > _MOST_WORK:
        return Limits(None, "so large a world has not been looked at")
    # In the units of what agents see, which are not those of an imported environment.
    gap = (world.optimal_value - world.reference_value) / world.units[1]
    if world.valued is not model:
        best = float(model.start @ optimal(model)[0][0])
        gap = best - evaluate(model, uniform_policy(model.spec))
    states = _critical(model, gap)
    if not states:
        return Limits(None, "no single state decides about a fifth of what can be gained")
    reach = min(_reach(model, state) for state in states)
    labels = min(float(model.actions) ** len(states), 1e300)
    found = fewest_users(privacy, reach), fewest_users(privacy, worlds=labels)
    words = f"actions in any order in {len(states)} states that matter"
    return Limits(max(n for n in found if n), words)


def _critical(model: FiniteModel, gain: float) -> list[int]:
    """States that can be come to, where one wrong action at all steps loses a fifth of ``gain``."""
    values, best = optimal(model)
    top = float(model.start @ values[0])
    found = []
    for state in range(model.states):
        for action in range(model.actions):
            changed = np.array(best.actions)
            changed[:, state] = action
            policy = Policy.deterministic(changed, model.actions)
            if top - float(model.start @ policy_values(model, policy)[0]) >= _LOST * gain > 0.0:
                found.append(state)
                break
    return [state for state in found if _reach(model, state) > 0]


def _reach(model: FiniteModel, state: int) -> float:
    """The largest probability with which any policy comes to a state in time to act there."""
    value = np.eye(model.states)[state]
    for step in range(model.horizon - 2, -1, -1):
        value = (model.transitions_at(step) @ value).max(axis=1)
        value[state] = 1.0
    return float(model.start @ value)
