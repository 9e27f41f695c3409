"""Where episodes end, estimated from releases: beyond a box, or else by regression."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.transition_model import PolynomialFeatures
from tacit.continuous.transition_moments import (
    BINS,
    GOING,
    TerminationHistogram,
    TerminationMoments,
)
from tacit.privacy.statistic import Bools, Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec
    from tacit.privacy.curator import Release

# Standard deviations of noise from which on ends are sure, and likely.
_SURE, _LIKELY = 4.0, 2.0
# The part of ends that bounds along a coordinate have to explain; more would be others' too.
_ENOUGH, _TOO_MUCH = 0.8, 1.2
# A box that explains less of the ends than this is none.
_A_BOX = 0.5
# Where users have been: bins of so many standard deviations, and so much more on either side.
_SEEN, _AROUND = 3.0, 0.5
# Blocks after which users give up hope to get farther.
_STALLED = 2
# States count as an end from this value of the regression of signs on.
_SIGN = 0.5


@dataclass(eq=False)
class TerminationBox:
    """The box in which episodes go on, by histograms along its coordinates; a value.

    Ends are bins in which more episodes end than noise can say, and fewer go on than could be
    there. Along one coordinate after the other, the ones with the most prominent bins first, bounds
    are moved inwards until they explain the ends that are left.

    Where rewards are >= 0, states that no user has been to count as ends, too, once there are any.
    Where they are <= 0, users who explore hope for an end there as long as none has been found;
    along a coordinate in which they got no farther for two blocks they give up.
    """

    edges: tuple[Floats, Floats]  # the lower and the upper corner of the box that is asked about
    coordinates: Ints  # (c,), those that are asked about
    reward_range: tuple[float, float]
    ends: Floats  # released, summed over blocks, as the next two
    going: Floats
    lengths: Floats
    lows: Floats  # between these, episodes go on
    highs: Floats
    seen: Ints  # (c, 2), the first bin that users have surely been to, and the one after the last
    stalled: Ints  # (c, 2), for how many blocks they got no farther
    variance: float = 0.0  # of the releases' noise
    explained: float = 1.0  # the part of ends that is beyond, surely

    @classmethod
    def of(cls, asked: TerminationHistogram) -> TerminationBox:
        """Before any release."""
        known = (asked.lows, asked.highs), asked.coordinates, asked.spec.reward_range
        ends, going = np.zeros((2, len(asked.coordinates), BINS))
        sums = ends, going, np.zeros(asked.spec.horizon.bit_length())
        seen: Ints = np.full((len(ends), 2), -1)
        return cls(*known, *sums, asked.lows, asked.highs, seen, np.zeros_like(seen))

    def after(self, parts: Mapping[str, Floats], std: float) -> TerminationBox:
        """With one more release."""
        new, before = copy(self), self.seen
        new.ends, new.going = self.ends + parts["ends"], self.going + parts["going"]
        new.lengths, new.variance = self.lengths + parts["lengths"], self.variance + std**2
        new._find()
        farther = (new.seen - before) * (-1, 1) > 0
        new.stalled = np.where(farther | (before < 0), 0, self.stalled + 1)
        return new

    @property
    def total(self) -> float:
        """Episodes that ended, zero where that is not sure."""
        total = float(self.lengths.sum())
        return total if total > _SURE * math.sqrt(self.variance * len(self.lengths)) else 0.0

    def _find(self) -> None:
        """Sets the bounds, from all releases."""
        first, last = self.edges
        self.lows, self.highs, self.explained = first.copy(), last.copy(), 1.0
        left = total = self.total
        noise, unsure = math.sqrt(self.variance), self.variance * len(self.lengths)
        often = 2.0 ** float(self.lengths.argmax())
        stays = often * np.maximum(self.going - _LIKELY * noise / GOING, 0.0)
        sure = (self.ends > _SURE * noise) & (self.ends > stays)
        rest = set(range(len(self.coordinates)))
        while rest and left > 3.0 * math.sqrt(unsure):
            found = (self._beyond(k, sure[k], left, unsure) for k in sorted(rest))
            score, k, out = max(found, key=lambda one: one[0])
            if not score:
                break
            rest.remove(k)
            inside, i = np.flatnonzero(~out), self.coordinates[k]
            size = (last[i] - first[i]) / BINS
            self.lows[i] = max(self.lows[i], first[i] + size * inside[0])
            self.highs[i] = min(self.highs[i], first[i] + size * (inside[-1] + 1))
            left -= float(self.ends[k, out].sum())
            unsure += self.variance * float(out.sum())
        if total:
            spread = math.sqrt(self.variance * (len(self.lengths) + BINS))
            self.explained = 1.0 - (left - _LIKELY * spread) / total
        self._look_around()
        if self.reward_range[0] >= 0.0 and total:
            lows, highs = self._around_seen(self.seen >= 0)
            # Noise may say that users have been beyond an end only; then that end counts.
            below = (self.lows == first) & (lows < self.highs)
            above = (self.highs == last) & (highs > self.lows)
            self.lows = np.where(below, lows, self.lows)
            self.highs = np.where(above, highs, self.highs)

    def _beyond(self, k: int, sure: Bools, left: float, unsure: float) -> tuple[float, int, Bools]:
        """Prominence of sure ends along a coordinate, and which bins are beyond the bounds."""
        middle, out = self._middle(k), np.zeros(BINS, dtype=np.bool_)
        at: Ints = np.flatnonzero(sure)
        at = at[np.argsort(-np.abs(at + 0.5 - middle), kind="stable")]
        enough = int(np.searchsorted(np.cumsum(self.ends[k, at]), _ENOUGH * left))
        at = at[: enough + 1]
        above, below = at[at + 0.5 > middle], at[at + 0.5 < middle]
        if len(above):
            out[above.min() :] = True
        if len(below):
            out[: below.max() + 1] = True
        most = _TOO_MUCH * left + _LIKELY * math.sqrt(unsure + self.variance * float(out.sum()))
        if out.all() or float(self.ends[k, out].sum()) > most:
            return 0.0, k, out
        return float((self.ends[k, at] ** 2).sum()), k, out

    def _middle(self, k: int) -> float:
        """The middle of where episodes go on, in bins; that of the box if it is not known."""
        bins, total = np.arange(BINS) + 0.5, float(self.going[k].sum())
        error = math.sqrt(self.variance * np.sum((bins - BINS / 2) ** 2)) / GOING
        if total <= 0.0 or error > 2.0 * total:
            return BINS / 2
        return float(bins @ self.going[k]) / total

    def _look_around(self) -> None:
        """Where users have surely been."""
        noise = math.sqrt(self.variance) / GOING
        self.seen = np.full_like(self.stalled, -1)
        for k, share in enumerate(self.going):
            there = np.flatnonzero(share > _SEEN * noise)
            if len(there) > 1 and share[there].sum() >= 0.5 * share.sum():
                self.seen[k] = there[0], there[-1] + 1

    def _around_seen(self, sides: Bools) -> tuple[Floats, Floats]:
        """Bounds around where users have been, on some sides (c, 2); those of the box on others."""
        around = _AROUND * (self.seen[:, 1] - self.seen[:, 0]) if self.variance else 0.0
        lows, highs, at = self.edges[0].copy(), self.edges[1].copy(), self.coordinates
        size = (highs - lows)[at] / BINS
        low = np.maximum(self.seen[:, 0] - around, 0)
        high = np.minimum(self.seen[:, 1] + around, BINS)
        lows[at] += size * np.where(sides[:, 0], low, 0)
        highs[at] = np.where(sides[:, 1], self.edges[0][at] + size * high, highs[at])
        return lows, highs

    @property
    def hope(self) -> tuple[Floats, Floats] | None:
        """Bounds beyond which ends are hoped for; ``None`` if nowhere."""
        if self.reward_range[1] > 0.0 or self.total:
            return None
        lows, highs = self._around_seen((self.seen >= 0) & (self.stalled < _STALLED))
        some = (lows > self.edges[0]).any() or (highs < self.edges[1]).any()
        return (lows, highs) if some else None

    def __call__(self, states: Floats) -> Bools:
        """Whether episodes are over at states (n, D)."""
        lows, highs = self.lows, self.highs
        if self.reward_range[0] < 0.0:
            # Where the box that is asked about ends, nothing else does: states may be open there.
            lows = np.where(lows > self.edges[0], lows, -np.inf)
            highs = np.where(highs < self.edges[1], highs, np.inf)
        return np.asarray(np.any((states < lows) | (states > highs), axis=1))


@dataclass(frozen=True, eq=False)
class TerminationRegression:
    """Where episodes end, by regression of signs on features of states."""

    features: PolynomialFeatures  # that the boundary is linear in
    moments: Floats  # released, summed over blocks
    variance: float = 0.0  # of their noise

    @classmethod
    def of(cls, features: PolynomialFeatures) -> TerminationRegression:
        """Before any release."""
        return cls(features, np.zeros((features.size + 1,) * 2))

    def after(self, moments: Floats, std: float) -> TerminationRegression:
        """With one more release."""
        moments, variance = self.moments + moments, self.variance + std**2
        return replace(self, moments=moments, variance=variance)

    def __call__(self, states: Floats) -> Bools:
        """Whether episodes are over at states (n, D)."""
        z = self.features(states, np.zeros(len(states), dtype=np.int64))
        return np.asarray(z @ self._weights > _SIGN)

    @property
    def _weights(self) -> Floats:
        p = self.features.size
        values, vectors = np.linalg.eigh(self.moments[:p, :p])
        # A random symmetric matrix has eigenvalues up to sqrt(2 p) times its off-diagonal entries'.
        ridge = math.sqrt(self.variance * p) + 1e-3 * max(float(np.trace(self.moments)), 0.0)
        rotated = vectors.T @ self.moments[:p, p]
        return np.asarray(vectors @ (rotated / (np.maximum(values, 0.0) + ridge + 1e-9)))


@dataclass(frozen=True, eq=False)
class TerminationModel:
    """Where episodes end: beyond a box, if one explains the ends, or else by regression."""

    box: TerminationBox
    signs: TerminationRegression

    @property
    def boxed(self) -> bool:
        """Whether a box is believed in, and asked about."""
        return bool(len(self.box.coordinates)) and self.box.explained >= _A_BOX

    def query(self, spec: BoxSpec) -> TerminationHistogram | TerminationMoments:
        """The statistic that the next block is asked."""
        if self.boxed:
            return TerminationHistogram(spec, *self.box.edges)
        return TerminationMoments(spec, self.signs.features)

    def after(self, release: Release) -> TerminationModel:
        """With one more release."""
        if self.boxed:
            box = self.box.after(release.parts, float(np.max(release.std["ends"])))
            return replace(self, box=box)
        std = float(np.max(release.std["moments"]))
        return replace(self, signs=self.signs.after(release["moments"], std))

    def __call__(self, states: Floats) -> Bools:
        """Whether episodes are over at states (n, D)."""
        return self.box(states) if self.boxed else self.signs(states)
