"""Rules of our own for a release: grid, sum, scale and cost, by code that curators do not share.

``docs/noise.md`` has the rules. A statistic's declared sensitivity is believed here (the attack on
it is elsewhere), and so is the vector that it makes of one user.
"""

import dataclasses
import functools
import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.budget import Relation
from tacit.privacy.curator import JointCurator
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Floats
from tacit.testing.recording import ReleaseRecord

Ints = NDArray[np.int64]

_CHUNK, _ADDITIONS = 512, 2**17
# Adding up a chunk in floats, in parts of a user's length.
_SUMMING = 2.0**-18


def declared(statistic, relation, norm):
    """A declared sensitivity."""
    bound = statistic.l2(relation) if norm == "l2" else statistic.l1(relation)
    return math.nan if bound is None else float(bound)


def spread(size, norm):
    """How far rounding moves a vector, in steps."""
    return math.sqrt(size) if norm == "l2" else float(size)


def step_of(statistic, norm):
    """The largest power of two g with g sqrt(n) <= 0.0001 D."""
    most = 1e-4 * declared(statistic, Relation.ZERO_OUT, norm)
    most /= spread(statistic.layout.size, norm)
    return math.ldexp(1.0, math.frexp(most)[1] - 1)


def apart(statistic, relation, norm, step):
    """How far two neighbours' sums are apart at most, in steps."""
    zero, moved = declared(statistic, Relation.ZERO_OUT, norm), declared(statistic, relation, norm)
    return (moved + _SUMMING * zero) / step + spread(statistic.layout.size, norm)


def total_of(statistic, raw, step):
    """The sum in whole steps, and where floats leave its rounding open."""
    size, vectors = statistic.layout.size, statistic.contributions(raw)
    total, is_open = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=bool)
    numbers = sum(array[0].size for array in raw.arrays.values()) if raw.users else 1
    chunk = min(_CHUNK, _ADDITIONS // numbers)
    for at in range(0, raw.users, chunk):
        steps = vectors[at : at + chunk].sum(axis=0) / step
        whole = np.rint(steps)
        total += whole.astype(np.int64)
        is_open |= np.abs(steps - whole) > 0.5 - 1e-6
    return total, is_open


def counted(ids, most, once_per_block):
    """Which rows of which block count: the first ``most`` episodes of everybody."""
    seen = Counter()
    kept = []
    for block in ids:
        here = set()
        rows = []
        for who in block:
            # 7 and "7" are one person.
            name = str(who)
            rows.append(seen[name] < most and not (once_per_block and name in here))
            seen[name] += rows[-1]
            here.add(name)
        kept.append(np.array(rows, dtype=bool))
    return kept


# An accountant of our own: the Gaussian hockey-stick in sixty digits.


def _upper(t):
    """P(Z > t), by the series of the error function or, far out, a continued fraction."""
    if t < 0:
        return 1 - _upper(-t)
    with localcontext() as context:
        context.prec = 90
        density = (-t * t / 2).exp() / (2 * _PI).sqrt()
        if t < 7:
            term = total = t
            n = 1
            while term > total * Decimal(10) ** -85:
                term = term * t * t / (2 * n + 1)
                total += term
                n += 1
            return Decimal(1) / 2 - density * total
        fraction = Decimal(0)
        for n in range(400, 0, -1):
            fraction = n / (t + fraction)
        return density / (t + fraction)


_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def hockey_stick(mu, epsilon):
    """The smallest delta of a mu-Gaussian-DP mechanism at an epsilon, to about forty digits."""
    with localcontext() as context:
        context.prec = 70
        m, e = Decimal(mu), Decimal(epsilon)
        return _upper(e / m - m / 2) - e.exp() * _upper(e / m + m / 2)


@functools.lru_cache(maxsize=64)
def largest_mu(epsilon, delta):
    """The largest mu whose delta is not above this one, to twelve digits."""
    low, high, wanted = 0.0, 20.0 + 2.0 * math.sqrt(epsilon), Decimal(delta)
    while high - low > 1e-13 * high:
        middle = (low + high) / 2.0
        if hockey_stick(middle, epsilon) <= wanted:
            low = middle
        else:
            high = middle
    return low


def episode_limit(privacy):
    """What the releases about one episode may cost together: mu^2, or epsilon if pure.

    A user has g episodes. If they may meet in one release, their moves add up there, which is g^2
    in mu^2 (Cauchy and Schwarz); in different releases squares add up, which is g. Epsilons add.
    """
    g = int(privacy.episodes_per_user)
    if privacy.needs_l1:
        return float(privacy.epsilon) / g
    alone = privacy.local or privacy.disjoint
    return largest_mu(privacy.epsilon, privacy.delta) ** 2 / (g if alone else g * g)


def exact_sum(costs, power):
    """Sum of costs to a power, without rounding."""
    return sum((Fraction(cost) ** power for cost in costs), Fraction(0))


# How far a scale may be off: downwards, and upwards.
_TIGHT, _WASTE = 1e-9, 1e-5


@dataclass(frozen=True, eq=False)
class Draw:
    """What was asked of the source, and what it drew."""

    pure: bool
    scale: float
    values: Ints


@dataclass(frozen=True, eq=False)
class Answer:
    """One release, beside what it must be.

    Attributes:
        record, place: the release, and which one of its run it is.
        noise: what was released minus our own sum, in steps.
        scale: what our own rules demand, in steps.
        draw: what the source drew for it.
        costs: by block, what it really cost: sensitivity over the scale that was asked for.
        wrong: what our own rules say against it.
        step: of its grid.
    """

    record: ReleaseRecord
    place: int
    noise: Floats
    scale: float
    draw: Draw | None
    costs: dict[int, float]
    wrong: tuple[str, ...] = ()
    step: float = 1.0


def answers_of(recorder, draws):
    """All releases of joint curators; each must have had one draw of its own."""
    records = [p for p in recorder.records if isinstance(p.curator, JointCurator)]
    drawn = dict(zip(map(id, records), draws, strict=False))
    found = []
    streams = {}
    places = {}
    for record in records:
        place = places.setdefault(record.curator, 0)
        places[record.curator] += 1
        if record.stream is not None:
            streams.setdefault(record.curator, []).append((place, record))
        else:
            found.append(_plain(recorder, record, place, drawn.get(id(record))))
    for some in streams.values():
        # A run that is read again has another object for the same stream.
        stream = some[-1][1].stream
        assert stream is not None
        found += _streamed(recorder, stream, some, [drawn.get(id(p)) for _, p in some])
    if len(records) != len(draws) and found:
        words = f"{len(records)} releases drew {len(draws)} times"
        found[0] = dataclasses.replace(found[0], wrong=(words, *found[0].wrong))
    order = {id(p): i for i, p in enumerate(records)}
    return sorted(found, key=lambda a: order[id(a.record)])


def _plain(recorder, record, place, draw):
    """One release of one block."""
    statistic, curator, where = record.statistic, record.curator, f"release {place}"
    assert isinstance(curator, JointCurator)
    privacy, cost, block = curator.privacy, float(record.release.cost or 0), record.block
    step = step_of(statistic, privacy.norm)
    far = apart(statistic, privacy.relation, privacy.norm, step)
    steps = statistic.layout.pack(record.release.parts) / step
    whole, is_open = total_of(statistic, recorder.blocks[curator, block], step)
    noise, wrong, asked = np.rint(steps) - whole.astype(np.float64), [], math.nan
    if np.abs(steps - np.rint(steps)).max(initial=0.0) > 1e-3:
        wrong.append(f"{where} is not on the grid of {step:g}")
    if draw is None:
        wrong.append(f"{where} drew nothing from the source")
    else:
        asked = draw.scale
        wrong += misfit(where, draw, far / cost, privacy.needs_l1)
        wrong += not_drawn(where, noise, draw, is_open)
    spread_of = (math.sqrt(2.0) if privacy.needs_l1 else 1.0) * step * far / cost
    for part in statistic.layout.parts:
        std = float(np.max(record.release.std[part.name])) * part.weight
        if abs(std - spread_of) > 2e-3 * spread_of:
            wrong.append(f"{where} states a standard deviation of {std:.4g}, not {spread_of:.4g}")
    return Answer(record, place, noise, far / cost, draw, {block: far / asked}, (*wrong,), step)


def misfit(where, draw, demanded, pure):
    """Whether noise of another scale or law was asked for than sensitivity and cost demand."""
    found, ratio = [], draw.scale / demanded
    if not 1.0 - _TIGHT <= ratio <= 1.0 + _WASTE:
        words = "times the scale that sensitivity, cost and grid demand"
        found.append(f"{where} asked for noise of {ratio:.9f} {words}")
    if draw.pure != pure:
        found.append(f"{where} asked for {'Laplace' if draw.pure else 'Gaussian'} noise")
    return found


def not_drawn(where, noise, draw, is_open):
    """Whether what was released is not our own sum plus what was drawn."""
    if draw.values.shape != noise.shape:
        return [f"{where} has {noise.size} entries and drew {draw.values.size} numbers"]
    off = np.abs(noise - draw.values) > np.where(is_open, 1.0, 0.0)
    words = f"is not its users' sum plus the noise that was drawn, in {off.sum()} of {off.size}"
    return [f"{where} {words} entries"] if off.any() else []


def _streamed(recorder, stream, some, draws):
    """The releases of a running sum, through the inverse of what its counter does to noise.

    What is published is A x + M z, z being what was drawn; M is found by playing single numbers
    through a counter of the same kind. Block k moves M^-1 A e_k, which is what it costs.
    """
    curator, statistic = stream._curator, stream.statistic
    privacy, relation, norm = curator.privacy, curator.privacy.relation, curator.privacy.norm
    step = step_of(statistic, norm)
    far = apart(statistic, relation, norm, step)
    prefix, rows = np.zeros(statistic.layout.size), []
    for _, record in some:
        raw, asked = recorder.blocks[curator, record.block], record.statistic
        prefix = prefix + total_of(asked, raw, step)[0]
        rows.append(asked.layout.pack(record.release.parts) / step - prefix)
    matrix = _responses(stream, len(some))
    alone = bool(np.abs(np.diag(matrix)).min() > 0.0)
    inverse = np.linalg.inv(matrix) if alone else np.linalg.pinv(matrix)
    noise, moves = inverse @ np.stack(rows), inverse @ np.tril(np.ones(inverse.shape))
    scales = np.array([1.0 if d is None else d.scale for d in draws])
    parts = np.abs(moves) * far / scales[:, np.newaxis]
    costs = parts.sum(axis=0) if privacy.needs_l1 else np.sqrt((parts**2).sum(axis=0))
    found = []
    for t, (place, record) in enumerate(some):
        claimed, draw = float(record.release.cost or math.nan), draws[t]
        wrong = [] if alone else ["some release of a stream has no noise of its own"]
        if costs[t] > claimed * (1.0 + 1e-7):
            wrong.append(f"the stream's block {t} costs {costs[t]:.9g}, charged is {claimed:.9g}")
        if draw is None or draw.pure != privacy.needs_l1:
            wrong.append(f"release {place} drew nothing, or noise of another law")
        # Fractions of C x are rounded, which moves it by less than this.
        elif np.abs(noise[t] - draw.values).max() > 1e-4 * draw.scale:
            wrong.append(f"release {place} of a stream is not its sum plus what was drawn")
        scale = float(scales[t] * max(1.0, costs.max() / claimed))
        paid = {record.block: float(costs[t])}
        found.append(Answer(record, place, noise[t], scale, draw, paid, tuple(wrong)))
    return found


class _Impulse(Noise):
    """Draws zeros, and in one place a number of a thousand times its scale."""

    def __init__(self, place):
        super().__init__()
        self._left, self.size = place, 1.0

    def steps(self, pure, scale, count):
        self._left -= 1
        if self._left == -1:
            self.size = math.floor(1024.0 * scale)
        return np.full(count, self.size if self._left == -1 else 0.0).astype(np.int64)


def _responses(stream, releases):
    """M: how much of each draw is in each release, by the counter's own code."""
    columns = []
    # Of the same size: binary places may depend on it.
    zero = np.zeros(stream.statistic.layout.size, dtype=np.int64)
    for t in range(releases):
        source = _Impulse(t)
        counter = stream.counter.rebuild(zero.shape, source)
        out = [float(counter.release(zero)[0]) for _ in range(releases)]
        columns.append(np.array(out) / source.size)
    return np.array(columns).T
