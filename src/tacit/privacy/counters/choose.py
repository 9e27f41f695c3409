"""The front door: a budget, a sensitivity and a number of releases in, the best counter out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.privacy.budget import Budget, Relation, checked_relation
from tacit.privacy.counters.base import Counter
from tacit.privacy.counters.dense import MOST_OPTIMAL, NormalisedSquareRoot, Optimal
from tacit.privacy.counters.tree import Blocks, SmoothTree
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise, NoiseSource
from tacit.privacy.validation import MOST_USERS, whole_number

KINDS: Mapping[str, type[Counter]] = {
    cls.kind: cls for cls in (Optimal, NormalisedSquareRoot, SmoothTree, Blocks)
}

# Above this a history is too dear: it keeps a vector or two for every release, and its work per
# release grows with the number of releases.
_LONGEST_HISTORY = 1024
_LARGEST_HISTORY = 1 << 25
# Above this nobody looks at the noise of every single release to find the best counter.
_LONGEST_COMPARISON = 1 << 22


def counter(
    budget: Budget,
    sensitivity: float,
    releases: int | None,
    shape: tuple[int, ...] = (),
    *,
    kind: str = "auto",
    relation: Relation | str = Relation.REPLACE_ONE,
    noise_seed: int | None = None,
    source: NoiseSource | None = None,
) -> Counter:
    """The best private running sum for a budget and a length.

    Args:
        budget: what everything the counter ever publishes may cost one user. With ``delta = 0``
            the noise is Laplace and ``sensitivity`` is in the 1-norm; otherwise the noise is
            Gaussian and ``sensitivity`` is in the 2-norm.
        sensitivity: the most that one user can change the one item she is in, enforced by you.
        releases: the number of releases that are paid for; the counter refuses more. ``None``
            where it is unknown, for disjoint blocks.
        shape: the shape of one item, ``()`` for a plain number.
        kind: ``"auto"`` for the smallest worst-case error at reasonable memory, or a name of
            ``KINDS``.
        relation: what ``sensitivity`` was computed for; it is stated in the guarantee.
        noise_seed: a simulation without protection; see :class:`tacit.privacy.noise.Noise`.
        source: another source of noise (for audits); excludes ``noise_seed``.

    >>> c = counter(Budget(1.0, 1e-6), sensitivity=1.0, releases=100)
    >>> c.kind, round(float(c.std.max()), 2), c.guarantee.sampler
    ('normalised square root', 9.93, 'exact')
    >>> counter(Budget(1.0, 0.0), sensitivity=1.0, releases=100).kind
    'smooth tree'
    """
    if not isinstance(budget, Budget):
        raise InvalidArgument(f"budget must be a tacit.Budget, got {budget!r}")
    if source is not None and noise_seed is not None:
        raise InvalidArgument("give noise_seed or source, not both")
    chosen = make_counter(
        kind,
        sensitivity=sensitivity,
        releases=releases,
        shape=shape,
        mu=None if budget.pure else budget.mu,
        epsilon=budget.epsilon if budget.pure else None,
        source=Noise(noise_seed) if source is None else source,
    )
    chosen.budget = budget
    chosen.relation = checked_relation(relation)
    return chosen


def make_counter(kind: str, **options: Any) -> Counter:
    """A counter of the kind asked for, with its arguments, or the best one for ``"auto"``."""
    if options.get("releases") is not None:
        options["releases"] = whole_number("releases", options["releases"], most=MOST_USERS)
    if isinstance(kind, str) and kind == "auto":
        pure = options.get("epsilon") is not None
        return _best_laplace(options) if pure else _best_gaussian(options)
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidArgument(f"kind must be auto or one of {', '.join(KINDS)}, got {kind!r}")
    return KINDS[kind](**options)


def _best_gaussian(options: dict[str, Any]) -> Counter:
    releases = options.get("releases")
    if releases is None:
        return Blocks(**options)
    if releases <= _LONGEST_HISTORY:
        few = releases <= MOST_OPTIMAL
        chosen: Counter = Optimal(**options) if few else NormalisedSquareRoot(**options)
        if chosen.memory * chosen.size <= _LARGEST_HISTORY:
            return chosen
    return SmoothTree(**options)


def _best_laplace(options: dict[str, Any]) -> Counter:
    releases = options.get("releases")
    if releases is None:
        return Blocks(**options)
    if releases > _LONGEST_COMPARISON:
        return SmoothTree(**options)
    return min(Blocks(**options), SmoothTree(**options), key=lambda one: float(one.std.max()))
