"""``statistic="counts"``: counts along the policies that were played, and models of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.sizes import Floats, check_bytes
from tacit.mixture.estimate import REWARD_VARIANCE, Fit, MixtureModel, PublicFeatures
from tacit.mixture.path_counts import PathCounts

if TYPE_CHECKING:
    from tacit.mixture.spec import MixtureSpec
    from tacit.numerics.regression import BlockSums
    from tacit.privacy.curator import Release
    from tacit.tabular.policy import Policy

Ints = NDArray[np.int64]

Sums = tuple[dict[str, Floats], dict[str, Floats], float]
"""Sums of a block by name, the standard deviations of their noise, and that of weight 1."""


def path_counts(spec: MixtureSpec, public: PublicFeatures, policy: Policy) -> PathCounts:
    """Counts along a deterministic policy."""
    start = np.ones(spec.states) if spec.start is None else np.array(spec.start)
    assert policy.actions is not None  # noqa: S101
    tables = public.support, public.informs, start > 0
    unknown = public.reward_features is not None
    return PathCounts(*tables, spec.horizon, policy.actions, policy.version, unknown)


def count_sums(
    spec: MixtureSpec, public: PublicFeatures, release: Release, statistic: PathCounts
) -> Sums:
    """Counts of a release by step, state and the action that the policy took there."""
    H, S, A = spec.horizon, spec.states, spec.actions
    check_bytes("counts of a mixture agent", (H, S, A, S))
    rewards = release.parts.get("rewards")
    counts, paid = statistic.dense(release["transitions"], rewards)
    std = float(np.max(release.std["transitions"]))
    reward_std = float(np.max(release.std["rewards"])) if rewards is not None else 0.0
    at = np.arange(H)[:, np.newaxis], np.arange(S), statistic.policy
    visits, entering = _flow(spec, public, statistic, counts, release.users)
    tables = {name: np.zeros((H, S, A)) for name in ("rewards", "visits")}
    tables["counts"] = np.zeros((H, S, A, S))
    tables["counts"][at], tables["rewards"][at], tables["visits"][at] = counts, paid, visits
    reached, spread = np.zeros((H, S, A)), np.zeros((H, S, A))
    reached[at] = statistic.counted.any(axis=2)
    spread[at] = np.sqrt(entering)
    paying = np.where((tables["visits"] > 0) | (spread > 0), 1.0, 0.0)
    noise = {"counts": std * reached, "rewards": reward_std * paying, "visits": std * spread}
    return tables, noise, std


def _flow(
    spec: MixtureSpec, public: PublicFeatures, statistic: PathCounts, counts: Floats, users: int
) -> tuple[Floats, Floats]:
    """Visits (H, S) of a block, and how many noisy counts each is the sum of.

    Users start where it is known (else it is told by where they went) and go on as counted;
    where transitions do not depend on the weights, as is known.
    """
    H, S = spec.horizon, spec.states
    visits, entering = np.zeros((H, S)), np.zeros((H, S))
    chances = [public.mean[np.arange(S), taken] for taken in statistic.policy]
    if spec.start is not None:
        visits[0] = float(users) * np.array(spec.start)
    else:
        # Those who left by a counted transition, and their share of all who left.
        share = np.where(statistic.counted[0], chances[0], 0.0).sum(axis=1)
        visits[0] = counts[0].sum(axis=1) / np.where(share > 0, share, np.inf)
        entering[0] = statistic.counted[0].sum(axis=1)
    for h in range(H - 1):
        known = np.where(statistic.counted[h], 0.0, chances[h])
        visits[h + 1] = counts[h].sum(axis=0) + visits[h] @ known
        entering[h + 1] = statistic.counted[h].sum(axis=0) + entering[h] @ known**2
    return visits, entering


def count_rewards(features: Floats, sums: BlockSums, scale: float, pooled: bool) -> list[Fit]:
    """Regression of rewards on single cells (h, s, a), each with its own noise.

    A cell with n visits, known up to noise t, and reward noise s says R = n <v, omega> + error,
    of variance at most n / 4 + s^2 + t^2 / 4. Cells are weighted by its inverse; those whose visits
    do not stand out of their noise are left out. The prior is rewards of about 1/2 +- 1/2.
    """
    n, visit_noise = sums.scaled("visits"), sums.noise("visits")
    paid, reward_noise = sums.scaled("rewards"), sums.noise("rewards")
    used = (n > visit_noise) & (n > 0)
    step, state, action = np.nonzero(used)
    m = features.shape[2]
    error = n * REWARD_VARIANCE + reward_noise**2 + REWARD_VARIANCE * visit_noise**2
    weights = 1.0 / error[used]
    groups = [np.ones(len(step), bool)] if pooled else [step == h for h in range(len(n))]
    fits = []
    for here in groups:
        v, w, count = features[state[here], action[here]], weights[here], n[used][here]
        precision = (v * (w * count * count)[:, np.newaxis]).T @ v
        inverse = np.linalg.inv(precision + np.eye(m) / (m * REWARD_VARIANCE))
        omega = inverse @ (v.T @ (w * count * paid[used][here]))
        square = np.maximum(((features @ inverse) * features).sum(axis=-1), 0.0)
        fits.append((features @ omega, scale * np.sqrt(square)))
    return fits


class CountModel(MixtureModel):
    """Regression on counts along the policies that were played.

    A cell (h, s, a) with n visits says N(s') = n (p0(s') + x(s')' w) + error, whose variance is
    n P(s') + s^2 with s its noise. Entries are weighted by the inverse, with P from the round
    before; cells whose visits do not stand out of their noise are left out. The prior is
    |eta_i| about radius / sqrt(k) each.
    """

    def __init__(
        self,
        public: PublicFeatures,
        counts: Floats,
        noise: Floats,
        scale: float,
        rewards: Sequence[Fit],
        pooled: bool,
    ) -> None:
        self._public, self._scale = public, scale
        mass = np.where(public.informs, public.mean, 0.0).sum(axis=-1)
        visits = counts.sum(axis=-1) / np.where(mass > 0, mass, 1.0)
        spread = noise * np.sqrt(public.informs.sum(axis=-1))
        used = (visits > spread) & (visits > 0) & (mass > 0)
        step, state, action = np.nonzero(used)
        cells: tuple[NDArray[Any], ...] = visits[used], counts[used], noise[used], state, action
        groups = [np.ones(len(step), bool)]
        if not pooled:
            groups = [step == h for h in range(max(1, public.horizon - 1))]
        fits = [self._fit(*(part[here] for part in cells)) for here in groups]
        self._inverses = [inverse for inverse, _ in fits]
        super().__init__(public, [weights for _, weights in fits], rewards)

    def _fit(
        self, visits: Floats, counts: Floats, noise: Floats, s: Ints, a: Ints
    ) -> tuple[Floats, Floats]:
        public, n = self._public, visits[:, np.newaxis]
        x, p0, informs = public.features[s, a], public.mean[s, a], public.informs[s, a]
        k = public.free
        prior = np.eye(k) * k / (public.radius * public.scale) ** 2
        weights, precision = np.zeros(k), prior
        for _ in range(2):  # the second time with the variances that the first implies
            chances = np.clip(p0 + np.einsum("ckt,k->ct", x, weights), 1e-3, 1.0)
            error = np.maximum(n, 1.0) * chances + noise[:, np.newaxis] ** 2
            w = np.where(informs, 1.0 / error, 0.0)
            precision = np.einsum("ct,ckt,clt->kl", w * n * n, x, x, optimize=True) + prior
            target = np.einsum("ct,ckt->k", w * n * (counts - n * p0), x, optimize=True)
            weights = np.linalg.solve(precision, target)
        return np.asarray(np.linalg.inv(precision), dtype=np.float64), weights

    def next_values(
        self, step: int, values: Floats, wide: int | None = None
    ) -> tuple[Floats, Floats]:
        """Expected next values (j, S, A) for value functions (j, S), and their widths."""
        at = min(step, len(self._weights) - 1)
        inverse, weights = self._inverses[at], self._weights[at]
        base, inputs = self._public.apply(values)
        means, widths = [], []
        for value, mean, x in zip(values, base, inputs, strict=True):
            means.append(np.clip(mean + x @ weights, value.min(), value.max()))
            square = np.maximum(((x @ inverse) * x).sum(axis=-1), 0.0)
            widths.append(self._scale * np.sqrt(square))
        return np.array(means), np.array(widths)
