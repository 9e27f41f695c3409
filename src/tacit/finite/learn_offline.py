"""A policy from a log, with its evidence, in one call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.agent import Agent
from tacit.core.columns import as_numbers, require_shape
from tacit.core.episodes import Episodes
from tacit.core.kinds import maker
from tacit.core.ways import way
from tacit.finite.policy import Policy
from tacit.finite.recommendation import Recommendation
from tacit.finite.spec import FiniteSpec
from tacit.privacy.arguments import FilePath, checked_number, instance_of, one_of, whole_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import Block, Ints

_METHODS = {
    "returns": "tacit.tabular.pessimistic_improvement:PessimisticImprovement",
    "counts": "tacit.tabular.pessimistic_vi:PessimisticVI",
    "features": "tacit.linear.pessimistic_lsvi:PessimisticLSVI",
}


def learn_offline(
    episodes: Episodes,
    spec: FiniteSpec,
    privacy: Privacy,
    behaviour: Policy | Literal["uniform", "unknown"] | ArrayLike,
    *,
    method: Literal["returns", "counts", "features"] = "returns",
    confidence: float = 0.95,
    judged: float = 0.5,
    seed: int = 0,
    noise_seed: int | None = None,
    ledger: FilePath | None = None,
) -> Recommendation:
    """Learns a policy from a log, and says whether it is better than what the log's users got.

    Users are split at random, by a public seed: a part is learnt from, the others judge. Somebody
    with several episodes is in one part, and judges with her first one, since intervals are about
    people who are independent. Everybody pays the whole budget once.

    Args:
        episodes: the log; with ``user_ids`` where users have several episodes.
        spec: what is known of the world; states, actions and rewards outside of it do not count.
        privacy: JointDP with delta > 0, or NonPrivate.
        behaviour: what the users of the log were served: a policy, ``"uniform"`` over what states
            allow, or ``"unknown"``; or propensities (users, H), the probability with which every
            step's action was chosen, where the log has them.
        method: ``"returns"`` (:class:`tacit.PessimisticImprovement`), ``"counts"``
            (:class:`tacit.PessimisticVI`), or for specs of linear MDPs ``"features"``
            (:class:`tacit.PessimisticLSVI`).
        confidence: with which probability, over users and noise, all intervals hold.
        judged: the share of users who judge.
        seed: of the split and of ties; public.
        noise_seed: reproducible noise, for simulations only: it protects nobody.
        ledger: file that records what was spent.

    >>> import tacit
    >>> world = tacit.tabular.random_mdp(states=5, actions=3, horizon=3, seed=1)
    >>> log = world.simulate(tacit.Policy.uniform(3, 5, 3), 50_000, np.random.default_rng(0))
    >>> found = learn_offline(log, world.spec, tacit.JointDP(1.0, 1e-6), "uniform", noise_seed=0)
    >>> found.better, world.value(found.policy) >= found.value.low > world.baseline_value
    (True, True)
    """
    instance_of("episodes", episodes, Episodes)
    one_of("method", method, tuple(_METHODS))
    judged = checked_number("judged", judged, "in (0, 1)", lambda share: 0.0 < share < 1.0)
    seed = whole_number("seed", seed, least=0)
    propensities = None
    if not isinstance(behaviour, (Policy, str)):
        propensities = as_numbers("behaviour", behaviour)
        require_shape("behaviour", propensities, episodes.actions.shape)
        behaviour = "logged"
    learnt, judges = _split(episodes, judged, np.random.default_rng([seed, 5]))
    rows = np.concatenate([learnt, judges])
    options: dict[str, Any] = {} if ledger is None else {"ledger": ledger}
    agent: Agent = maker(way(_METHODS[method]))(
        spec,
        users=len(rows),
        privacy=privacy,
        behaviour=behaviour,
        confidence=confidence,
        judged=len(judges) / len(rows),
        seed=seed,
        noise_seed=noise_seed,
        **options,
    )
    for part in (learnt, judges):
        taken = episodes.take(part)
        data = taken.block()
        if propensities is not None:
            data = Block(data.users, {**data.arrays, "propensities": propensities[part]})
        agent.learn(data, taken.user_ids)
    found: Recommendation = agent.recommendation
    return replace(found, guarantee=agent.guarantee)


def _split(episodes: Episodes, judged: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Rows to learn from and rows that judge: of different users, in random order."""
    n = episodes.users
    people = np.arange(n)
    if episodes.user_ids is not None:
        _, people = np.unique([str(name) for name in episodes.user_ids], return_inverse=True)
    count = int(people.max()) + 1 if n else 0
    if count < 4:
        raise InvalidArgument(f"episodes must be of at least 4 users, got {count}")
    rank = rng.permutation(count)
    last = min(max(round((1.0 - judged) * count), 2), count - 2)
    order = np.argsort(rank[people], kind="stable")
    learnt = order[rank[people[order]] < last]
    _, first = np.unique(people, return_index=True)
    judges = first[rank >= last]
    return learnt, rng.permutation(judges)
