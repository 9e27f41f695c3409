"""Users who are as far apart as they can be, by family: what an attack should begin with.

The farthest neighbours of a bounded statistic seldom look like anybody real. Each function makes a
sampler for :func:`tacit.check_statistic`, ``check_agent(sample=...)`` and
``audit_agent(sample=...)``, which mixes it with users of the world itself. Where a ``policy`` is
given, actions (H, S), all of them follow it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats
from tacit.testing.made_up_users import Sample, mixed

Ints: TypeAlias = NDArray[np.int64]

# How many directions walkers have in one block; each has two walks.
_WALKS = 16


def worst_users(spec: Any, policy: Any = None) -> Sample:
    """The sampler for a world, by what its spec says.

    Where only those count who follow a deterministic ``policy``, they do.

    >>> from tacit.tabular import riverswim
    >>> worst_users(riverswim(3, 4).spec)(np.random.default_rng(0), 5)
    <Block of 5 users>
    """
    if hasattr(spec, "controls"):
        return saturating_users(spec.states, spec.controls, spec.horizon)
    if hasattr(spec, "lows"):
        ends = spec.lows, spec.highs
        return cornered_users(*ends, spec.actions, spec.horizon, spec.reward_range)
    sizes: list[Any] = [getattr(spec, name, None) for name in ("states", "actions", "horizon")]
    if not all(isinstance(size, int) for size in sizes):
        raise InvalidArgument(f"no worst users are known for a spec of type {type(spec).__name__}")
    states, actions, horizon = sizes
    table = getattr(policy, "actions", None)
    table = table if isinstance(table, np.ndarray) else None
    features = getattr(spec, "features", None)
    if isinstance(features, np.ndarray) and features.ndim == 3:
        return opposite_users(features, horizon, table)
    settled = settled_users(states, actions, horizon, table)
    if hasattr(spec, "transition_features"):
        # Some of what a mixture agent asks is of all users, some of those who follow its policy.
        psi = spec.transition_features
        return mixed(far_walkers(psi, horizon, spec.center, spec.directions), settled)
    return settled


def settled_users(states: int, actions: int, horizon: int, policy: Ints | None = None) -> Sample:
    """Users of finite worlds who stay in one cell, or go back and forth between two.

    Two of them in different cells, or in one cell and always or never paid, are as far apart as
    capped, pooled and plain counts allow.
    """

    def sample(rng: np.random.Generator, users: int) -> Block:
        homes = rng.integers(0, states, (users, 2))
        homes[:, 1] = np.where(rng.random(users) < 0.5, homes[:, 0], homes[:, 1])
        path = homes[:, np.arange(horizon + 1) % 2]
        return _finite(rng, path, rng.integers(0, actions, users), policy)

    return sample


def opposite_users(features: ArrayLike, horizon: int, policy: Ints | None = None) -> Sample:
    """Users who stay where features (S, A, d) point in a direction, or against it."""
    table = np.asarray(features, dtype=np.float64)
    S, A, d = table.shape

    def sample(rng: np.random.Generator, users: int) -> Block:
        cells = (rng.normal(size=(users, d)) @ table.reshape(S * A, d).T).argmax(axis=1)
        path = np.repeat((cells // A)[:, np.newaxis], horizon + 1, axis=1)
        # Where they go next is often somewhere else.
        last = rng.integers(0, S, users)
        path[:, -1] = np.where(rng.random(users) < 0.5, last, path[:, -1])
        return _finite(rng, path, cells % A, policy)

    return sample


def _finite(rng: np.random.Generator, path: Ints, action: Ints, policy: Ints | None) -> Block:
    """With one action for ever, or the policy's, and rewards that are always 1 or never."""
    users, horizon = path.shape[0], path.shape[1] - 1
    actions = np.repeat(action[:, np.newaxis], horizon, axis=1)
    if policy is not None:
        actions = policy[np.arange(horizon), path[:, :horizon]]
    paid = rng.integers(0, 2, (users, 1)).astype(np.float64)
    arrays = {"states": path, "actions": actions, "rewards": np.repeat(paid, horizon, axis=1)}
    return Block(users, {name: np.array(array) for name, array in arrays.items()})


def far_walkers(
    features: ArrayLike,
    horizon: int,
    center: ArrayLike | None = None,
    directions: ArrayLike | None = None,
) -> Sample:
    """Users of a mixture who walk as far as they can in a direction of a regression's sums.

    A regression asks for sums over steps of x x' and x (e_{s'} - p0), or of such for a value
    function. The two farthest users are as far as possible in some direction and against it. For
    random directions, of which each says what a transition is worth, the best walk that a user can
    make is found by dynamic programming; what is worth nothing is left out, by rewards that are no
    numbers. Half of the walks only count steps that lead back to where they began, and so repeat
    one step: sums of all steps are longest for those.

    Features psi are (S, A, d, S). p0 is <psi, center>, for a center (d,) of the weights, or
    nothing; x is psi along directions (d, k) of the weights, or along all.
    """
    psi = np.asarray(features, dtype=np.float64)
    S, d = psi.shape[0], psi.shape[2]
    along = np.eye(d) if directions is None else np.asarray(directions, dtype=np.float64)
    middle = np.zeros(d) if center is None else np.asarray(center, dtype=np.float64)
    x = np.einsum("sadt,dk->sakt", psi, along, optimize=True)
    x = x / max(float(np.sqrt((x**2).sum(axis=(2, 3)).max(initial=0.0))), 1e-12)
    mean = np.einsum("sadt,d->sat", psi, middle)
    sums = x - (x @ mean[..., np.newaxis]), x @ np.swapaxes(x, 2, 3)
    possible = np.abs(psi).sum(axis=2) > 0

    def sample(rng: np.random.Generator, users: int) -> Block:
        walks = []
        for _ in range(_WALKS):
            worth = _worth(x, mean, sums, rng)
            # What repeats itself: only steps that lead back to where they began.
            if rng.random() < 0.5:
                worth = np.where(np.eye(S, dtype=bool)[:, np.newaxis], worth, 0.0)
            worth = np.where(possible, worth, 0.0)
            walks += [_best_walk(worth, horizon), _best_walk(-worth, horizon)]
        picks = rng.permutation(np.arange(users) % len(walks))
        paid = rng.integers(0, 2, (users, 1)).astype(np.float64)
        path, chosen, rewards = (
            np.array(column).reshape(len(walks), -1)[picks] for column in zip(*walks, strict=True)
        )
        arrays: dict[str, Any] = {"states": path, "actions": chosen, "rewards": rewards * paid}
        return Block(users, arrays)

    return sample


def _worth(
    x: Floats, mean: Floats, sums: tuple[Floats, Floats], rng: np.random.Generator
) -> Floats:
    """What transitions are worth in a direction, of sums for all values or for some."""
    k = x.shape[2]
    slope, tilt = rng.normal(size=k), rng.normal(size=(k, k))
    shares = rng.choice([0.3, 1.0, 3.0], 2)
    if rng.random() < 0.5:
        across = np.einsum("sakt,k->sat", sums[0], slope)
        inside = np.einsum("sakl,kl->sa", sums[1], tilt)
    else:
        values = rng.random(x.shape[3]) - 0.5
        p, q = x @ values, values - (mean @ values)[..., np.newaxis]
        across = (p @ slope)[..., np.newaxis] * q
        inside = np.einsum("sak,kl,sal->sa", p, tilt, p)
    across /= max(float(np.abs(across).max(initial=0.0)), 1e-12)
    inside /= max(float(np.abs(inside).max(initial=0.0)), 1e-12)
    return np.asarray(shares[0] * across + shares[1] * inside[..., np.newaxis])


def _best_walk(worth: Floats, horizon: int) -> tuple[Ints, Ints, Floats]:
    """States, actions and rewards of the walk that is worth most."""
    S = len(worth)
    ahead, plans = np.zeros(S), []
    for _ in range(horizon):
        total = (np.maximum(worth, 0.0) + ahead).reshape(S, -1)
        plans.append(total.argmax(axis=1))
        ahead = total.max(axis=1)
    path, chosen = np.zeros(horizon + 1, dtype=np.int64), np.zeros(horizon, dtype=np.int64)
    rewards = np.ones(horizon)
    path[0] = int(ahead.argmax())
    for step, plan in enumerate(reversed(plans)):
        chosen[step], path[step + 1] = divmod(int(plan[path[step]]), S)
        if worth[path[step], chosen[step], path[step + 1]] <= 0.0:
            rewards[step] = np.nan
    return path, chosen, rewards


def saturating_users(states: int, controls: int, horizon: int) -> Sample:
    """Users under linear control whose states and controls are along one direction, and long.

    Their outer products have rank one, so that of two orthogonal ones each is clipped to the whole
    bound; next states point along or against a direction of their own.
    """

    def sample(rng: np.random.Generator, users: int) -> Block:
        inputs = _directions(rng, users, states + controls)
        lengths = 10.0 ** rng.uniform(-1.0, 6.0, (users, 1, 1))
        inputs = inputs[:, np.newaxis] * lengths
        path = np.repeat(inputs[:, :, :states], horizon + 1, axis=1)
        ends = _directions(rng, users, states)[:, np.newaxis] * lengths
        path[:, 1:] = np.where(rng.random((users, 1, 1)) < 0.3, ends, path[:, 1:])
        actions, ended = np.repeat(inputs[:, :, states:], horizon, axis=1), horizon + 1
        arrays = {"states": path, "actions": actions, "lengths": np.full(users, ended)}
        return Block(users, arrays)

    return sample


def _directions(rng: np.random.Generator, users: int, size: int) -> Floats:
    """Axes, half of the time, and else anything of length 1."""
    vectors = rng.normal(size=(users, size))
    axes = np.eye(size)[rng.integers(0, size, users)] * rng.choice([-1.0, 1.0], (users, 1))
    vectors = np.where(rng.random((users, 1)) < 0.5, axes, vectors)
    lengths: Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-300)


def cornered_users(
    lows: ArrayLike,
    highs: ArrayLike,
    actions: int,
    horizon: int,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> Sample:
    """Users in a box who stay in a corner, or anywhere, with one action and one reward for ever.

    Their residuals have the two largest sizes there are, of opposite sign. Infinite ends of the box
    count as 100.
    """
    ends = [np.asarray(corner, dtype=np.float64) for corner in (lows, highs)]
    low, high = (np.nan_to_num(end, posinf=100.0, neginf=-100.0) for end in ends)

    def sample(rng: np.random.Generator, users: int) -> Block:
        corners = np.where(rng.random((users, low.size)) < 0.5, low, high)
        anywhere = rng.uniform(low, high, (users, low.size))
        where = np.where(rng.random((users, 1)) < 0.5, corners, anywhere)
        paid = np.array(reward_range)[rng.integers(0, 2, (users, 1))]
        chosen = rng.integers(0, actions, (users, 1))
        arrays: dict[str, Any] = {
            "states": np.repeat(where[:, np.newaxis], horizon + 1, axis=1),
            "actions": np.repeat(chosen, horizon, axis=1),
            "rewards": np.repeat(paid, horizon, axis=1),
            "lengths": np.full(users, horizon + 1),
        }
        return Block(users, arrays)

    return sample
