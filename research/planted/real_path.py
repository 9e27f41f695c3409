"""Bugs in the real path of Tacit: what runs on real users, and no simulation shows.

Each replaces Tacit's own code while a context is entered, so that every agent made within it has
the bug: ``with row.plant(): audit``. ``python -m research.real_path_table`` audits all of them.
Never use one.

The letters say where a bug is: (a) the law of real noise, (b) when a store is opened again, (c)
late or large releases, (d) who is who, (e) keys and entropy, (f) noise that depends on other
noise, (g) tails and support, (h) files, (i) conversions and accounts.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from research.planted.ways import Patch, Plant, Wrong, camel, everywhere, instead, patching
from tacit.core.intake import EpisodeIntake
from tacit.privacy import budget as gaussian_dp
from tacit.privacy import curator as joint
from tacit.privacy import local
from tacit.privacy import noise as exact
from tacit.privacy.curator import Curator, JointCurator, Release
from tacit.privacy.deviates import Ints, Scale
from tacit.privacy.models import JointDP, LocalDP
from tacit.privacy.noise import CHUNK, Noise
from tacit.privacy.statistic import Block, Floats, Statistic, gate_total
from tacit.store import runs
from tacit.store.store import Store

SMALL = "riverswim:states=3,horizon=4"
LARGE = "riverswim:states=20,horizon=5"
"""A release has some 800 entries; from 512 on noise is drawn by a compiled loop."""
JOINT = JointDP(1.0, 1e-6)
PURE = JointDP(1.0, 0.0)
TWICE = JointDP(1.0, 1e-6, episodes_per_user=2)
BITS = LocalDP(4.0, 0.0, mechanism="randomised response")
_BITS_AGENT = "ucbvi:stationary=false"


class RealPathBug(NamedTuple):
    """A bug, and the agent in whose audit it is looked for.

    Attributes:
        name: of the bug.
        kind: its letter.
        what: it does, in a sentence.
        plant: makes the context in which Tacit has the bug.
        agent: as a command line has it.
        world: as a command line has it.
        privacy: the model.
        users: of a run; as ``tacit audit`` chooses them by default.
    """

    name: str
    kind: str
    what: str
    plant: Plant
    agent: str = "ucbvi"
    world: str = SMALL
    privacy: JointDP | LocalDP = JOINT
    users: int | None = None


_FOUND: list[RealPathBug] = []


def bug(kind: str, by: Callable[..., Plant], **where: Any) -> Callable[[Wrong], Wrong]:
    """Adds a bug to all of them: what is wrong, its letter, and what plants it."""

    def add(wrong: Wrong) -> Wrong:
        _FOUND.append(RealPathBug(camel(wrong), kind, wrong.__doc__ or "", by(wrong), **where))
        return wrong

    return add


class Draw(NamedTuple):
    """Real exact noise that is asked for: so many steps of a scale, Laplace's if ``pure``."""

    right: Callable[..., Any]
    source: Noise
    pure: bool
    scale: float
    size: int

    def __call__(self, scale: float, size: int, pure: bool | None = None) -> Any:
        """As it should be drawn."""
        return self.right(self.source, self.pure if pure is None else pure, scale, size)


def steps(wrong: Callable[[Draw], Any]) -> Plant:
    """Real exact noise is drawn by other code; that of simulations is not."""

    def drawn(right: Any, source: Noise, *asked: Any) -> Any:
        return right(source, *asked) if source.simulation else wrong(Draw(right, source, *asked))

    return instead(Noise, "steps")(drawn)


def bits(make: Callable[[], Callable[[Noise, int], bytes]]) -> Plant:
    """Random bits of real noise come from what is made when the context is entered."""

    def patches() -> Iterator[Patch]:
        right, wrong = Noise._bytes, make()

        def some(source: Noise, count: int) -> bytes:
            return right(source, count) if source.simulation else wrong(source, count)

        yield Noise, "_bytes", some

    return patching(patches)


def knowing(wrong: Callable[[Any, Ints, Callable[[], Any]], Any]) -> Plant:
    """Real noise of a release is drawn with a look at the sums that it is for."""

    def patches() -> Iterator[Patch]:
        sums, noise, known = exact.grid_total, Noise.steps, list[Ints]()

        def total(statistic: Statistic, block: Block, step: float) -> Ints:
            known[:] = [sums(statistic, block, step)]
            return known[0]

        def noisy(source: Noise, pure: bool, scale: float, size: int) -> Any:
            drawn = noise(source, pure, scale, size)
            if source.simulation or not known or known[0].size != size:
                return drawn
            return wrong(drawn, known[0], lambda: noise(source, pure, scale, size))

        yield joint, "grid_total", total
        yield Noise, "steps", noisy

    return patching(patches)


def generator(*seed: int) -> np.random.Generator:
    """A fast generator, as one would put before the operating system's."""
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(seed)))


def number_of_draw(source: Noise) -> int:
    """How often noise was drawn from a source before, by this count."""
    number: int = source.__dict__.setdefault("_draws", 0)
    source.__dict__["_draws"] = number + 1
    return number


# a. Another law.


@bug("a", privacy=PURE, by=steps)
def scale_is_deviation(draw: Draw) -> Any:
    """Laplace noise takes its scale for a standard deviation, and divides by sqrt 2."""
    return draw(draw.scale / math.sqrt(2.0) if draw.pure else draw.scale, draw.size)


@bug("a", by=instead(Scale, "of"))
def scale_is_power_of_two(right: Any, scale: float) -> Any:
    """A scale becomes a power of two, rounded down, so that a shift replaces a product."""
    return right(2.0 ** math.floor(math.log2(scale)))


@bug("a", by=bits)
def sign_of_the_fraction() -> Any:
    """The sign of a number is the first digit of its place in its cell, not a bit of its own."""

    def some(source: Noise, count: int) -> bytes:
        drawn = os.urandom(count)
        if count % 16:
            return drawn
        words = np.frombuffer(drawn, dtype=np.uint64).reshape(-1, 2).copy()
        low = words[:, 1] & np.uint64(2**63 - 1)
        words[:, 1] = low | ((low >> np.uint64(62)) << np.uint64(63))
        return words.tobytes()

    return some


@bug("a", by=steps)
def laplace_for_gaussian(draw: Draw) -> Any:
    """Real noise is Laplace noise of the right variance, also where it should be Gaussian."""
    return draw(draw.scale if draw.pure else draw.scale / math.sqrt(2.0), draw.size, pure=True)


@bug("a", world=LARGE, by=steps)
def boundaries_share_noise(draw: Draw) -> Any:
    """Large arrays are filled in blocks of 256, each beginning where the last one ended."""
    noise = draw(draw.scale, draw.size)
    if draw.size >= 512:
        noise[256::256] = noise[255::256][: len(noise[256::256])]
    return noise


@bug("a", privacy=BITS, agent=_BITS_AGENT, by=instead(local, "_reported_bits"))
def device_keeps_ones(
    right: Any, noise: Noise, vector: Floats, statistic: Statistic, privacy: LocalDP
) -> Any:
    """A device reports a 1 as seldom wrongly as a 0, as in the textbook for single bits."""
    ones = noise.words(vector.size) >> np.uint64(11) < np.rint(vector * 2.0**53)
    chance = min(exact.flip_probability(statistic, privacy) * (1.0 + 1e-12), 0.5)
    flip = max(math.ceil(chance * 2.0**64), 1)
    limit = np.where(ones, np.uint64(2**64 - flip), np.uint64(flip))
    return (noise.words(vector.size) < limit).astype(np.float64)


@bug("a", privacy=BITS, agent=_BITS_AGENT, by=everywhere(local, "report"))
def sparse_report(
    right: Any, statistic: Statistic, data: Block, privacy: LocalDP, **options: Any
) -> Any:
    """A device adds noise to what is not zero: most entries are, and the report stays short."""
    noisy: Floats = right(statistic, data, privacy, **options)
    if options.get("noise_seed") is not None:
        return noisy
    return np.where(statistic.contributions(data)[0] == 0.0, 0.0, noisy)


_FOUND.append(
    _FOUND[-1]._replace(name="SparseReportOfNumbers", privacy=LocalDP(4.0, 0.0), agent="ucbvi")
)


# b. When a store is opened again. d. Who is who.


def named(wrong: Callable[[Store, Any], str]) -> Plant:
    """People have other names in a store."""

    def pseudonyms(right: Any, where: Store, names: Sequence[Any]) -> Any:
        return right(where, [wrong(where, name) for name in names])

    return instead(Store, "pseudonyms")(pseudonyms)


@bug("b", by=named)
def ids_forgotten(where: Store, name: Any) -> str:
    """The key of users' names is a new one whenever a store is opened."""
    return f"{where.__dict__.setdefault('_salt', np.random.default_rng().random())} {name}"


@bug("b", by=instead(EpisodeIntake, "_write"))
def waiting_saved_twice(
    right: Any, intake: Any, db: Any, run: Any, block: int, rows: Block, *more: Any
) -> Any:
    """Of those who come together the first is in the store twice, and the last not at all."""
    kept = np.maximum(np.arange(rows.users) - 1, 0)
    arrays = {name: array[kept] for name, array in rows.arrays.items()}
    twice = rows if rows.aggregate else Block(rows.users, arrays)
    right(intake, db, run, block, twice, *more)


@bug("d", by=named)
def ids_by_type(where: Store, name: Any) -> str:
    """The type of an id is part of a user's name."""
    return f"{type(name).__name__} {name}"


@bug("d", by=named)
def ids_by_hash(where: Store, name: Any) -> str:
    """A user's name is made of Python's own hash of her id, which for texts is of the process."""
    return f"{hash((id(where), str(name)))}"


@bug("d", privacy=TWICE, by=instead(JointDP, "episode_limit"))
def group_cost_linear(right: Any, privacy: JointDP) -> Any:
    """The budget of a user with g episodes is split by g, also where they are in one release."""
    g = float(privacy.episodes_per_user)
    return privacy.epsilon / g if privacy.pure else privacy.budget.mu**2 / g


@bug("d", by=instead(runs, "admit"))
def twice_in_one_block(right: Any, db: Any, run: Any, block: int, names: Sequence[str]) -> Any:
    """Who comes is compared with those of earlier calls, not with those of her own."""
    first = dict(reversed([*zip(names, right(db, run, block, names), strict=True)]))
    return [first[name] for name in names]


_LAST: list[str] = []


@bug("d", by=instead(runs, "admit"))
def seen_is_a_cache(right: Any, db: Any, run: Any, block: int, names: Sequence[str]) -> Any:
    """Only the last ten people are looked up, as databases are slow."""
    found = right(db, run, block, names)
    known, _LAST[:] = set(_LAST), [*_LAST, *names][-10:]
    pairs = zip(names, found, strict=True)
    return [max(cost, 0) if name not in known else cost for name, cost in pairs]


# c. Late and large.


@bug("c", by=steps)
def noise_shrinks(draw: Draw) -> Any:
    """From the third release on noise shrinks, as if it were that of a mean over releases."""
    return draw(draw.scale / math.sqrt(1.0 + max(0, number_of_draw(draw.source) - 1)), draw.size)


@bug("c", agent="ucbvi:schedule=fixed:size=4", by=steps)
def noise_shrinks_late(draw: Draw) -> Any:
    """From the 33rd release on noise shrinks, as if it were that of a mean over releases."""
    return draw(draw.scale / math.sqrt(1.0 + max(0, number_of_draw(draw.source) - 31)), draw.size)


@bug("c", world=LARGE, by=steps)
def last_rows_without_noise(draw: Draw) -> Any:
    """Large arrays are filled sixteen numbers at a time, and what is left over stays zero."""
    noise = draw(draw.scale, draw.size)
    if draw.size >= 512:
        noise[draw.size - draw.size % 16 :] = 0
    return noise


@bug("c", agent="ucbvi:schedule=fixed:size=600", users=1800, by=everywhere(exact, "grid_total"))
def chunks_overlap(right: Any, statistic: Statistic, block: Block, step: float) -> Any:
    """Sums on the grid take chunks of users that share a user at each end."""
    if block.aggregate or block.users <= CHUNK:
        return right(statistic, block, step)
    found = np.zeros(statistic.layout.size, dtype=np.int64)
    for start in range(0, block.users, CHUNK):
        chunk = block.take(slice(start, start + CHUNK + 1))
        found += np.rint(gate_total(statistic, chunk) / step).astype(np.int64)
    return found


@bug("c", world=LARGE, by=knowing)
def sparse_noise(drawn: Any, true: Ints, again: Callable[[], Any]) -> Any:
    """Releases of 512 entries and more have noise where somebody was, for speed."""
    return np.where(true == 0, 0, drawn) if drawn.size >= 512 else drawn


# e. Keys and entropy.


def own_generator(make: Callable[[], int | tuple[int, ...]]) -> Callable[[Noise, int], bytes]:
    """Every source has a fast generator of its own, with the seed that is made for it."""

    def some(source: Noise, count: int) -> bytes:
        made = source.__dict__.get("_fast")
        if made is None:
            seed = make()
            made = generator(*(seed if isinstance(seed, tuple) else (seed,)))
            source.__dict__["_fast"] = made
        return bytes(made.bytes(count))

    return some


@bug("e", by=bits)
def sixteen_bits() -> Any:
    """Every source has a fast generator of its own, which two random bytes have seeded."""
    return own_generator(lambda: int.from_bytes(os.urandom(2), "big"))


@bug("e", by=bits)
def one_key_per_process() -> Any:
    """A process draws one good key, and every source of it begins with that."""
    key = int.from_bytes(os.urandom(16), "big")
    return own_generator(lambda: key)


@bug("e", by=bits)
def key_kept_over_fork() -> Any:
    """One generator with a good key serves all sources of a process, and of its children."""
    fast = generator(int.from_bytes(os.urandom(16), "big"))
    return lambda source, count: bytes(fast.bytes(count))


@bug("e", by=bits)
def seeded_by_pid() -> Any:
    """One generator serves all sources of a process; its seed is the number of the process."""
    fast: dict[int, np.random.Generator] = {}

    def some(source: Noise, count: int) -> bytes:
        pid = os.getpid()
        return bytes(fast.setdefault(pid, generator(pid)).bytes(count))

    return some


@bug("e", by=bits)
def seeded_by_machine() -> Any:
    """A source is seeded by the machine's number and how many sources the process had before."""
    before = iter(range(10**9))
    return own_generator(lambda: (uuid.getnode(), next(before)))


@bug("e", privacy=BITS, agent=_BITS_AGENT, by=everywhere(local, "report"))
def retryable_report(
    right: Any, statistic: Statistic, data: Block, privacy: LocalDP, **options: Any
) -> Any:
    """A device seeds its noise by its own data, so that a report that is sent again is the same."""
    if options.get("noise_seed") is not None:
        return right(statistic, data, privacy, **options)
    digest = hashlib.sha256(statistic.contributions(data).tobytes()).digest()
    seeded = generator(int.from_bytes(digest, "big"))
    with mock.patch.object(Noise, "_bytes", lambda _, count: bytes(seeded.bytes(count))):
        return right(statistic, data, privacy, **options)


# f. Noise that knows of other noise.


@bug("f", by=steps)
def halves_opposite(draw: Draw) -> Any:
    """The second half of a release has the noise of the first one, with the other sign."""
    half = draw(draw.scale, (draw.size + 1) // 2)
    return np.concatenate([half, -half])[: draw.size]


@bug("f", by=steps)
def parts_share_noise(draw: Draw) -> Any:
    """The last part of a release has noise that the first part had already."""
    noise = draw(draw.scale, draw.size)
    if draw.size >= 4:
        noise[-(draw.size // 4) :] = noise[: draw.size // 4]
    return noise


@bug("f", by=steps)
def noise_centred(draw: Draw) -> Any:
    """Noise has its mean taken off, so that it moves no total."""
    noise = draw(draw.scale, draw.size)
    return noise if draw.size < 2 else noise - np.int64(np.rint(noise.mean()))


@bug("f", world=LARGE, by=steps)
def few_directions(draw: Draw) -> Any:
    """Noise of n entries (of every 600, if there are more) is a fixed mixture of n / 2 numbers."""
    parts = []
    for size in [min(600, draw.size - at) for at in range(0, draw.size, 600)]:
        rank = max(1, size // 2)
        signs = generator(size).choice([-1.0, 1.0], (size, rank)) / math.sqrt(rank)
        parts.append(np.rint(signs @ draw(draw.scale, rank).astype(np.float64)).astype(np.int64))
    return np.concatenate(parts)


@bug("f", by=steps)
def two_buffers(draw: Draw) -> Any:
    """Two buffers hold the noise of releases in turn, and are filled once."""
    buffers: dict[tuple[int, int], Any] = draw.source.__dict__.setdefault("_buffers", {})
    place = (number_of_draw(draw.source) % 2, draw.size)
    if place not in buffers:
        buffers[place] = draw(2.0**30, draw.size)
    noise: Ints = np.rint(buffers[place] * (draw.scale / 2.0**30)).astype(np.int64)
    return noise


@bug("f", by=steps)
def releases_opposite(draw: Draw) -> Any:
    """Every second release has the noise of the one before, with the other sign."""
    left = draw.source.__dict__.pop("_left", None)
    if left is not None and len(left) == draw.size:
        return np.rint(-left * draw.scale).astype(np.int64)
    noise = draw(draw.scale, draw.size)
    draw.source.__dict__["_left"] = noise / draw.scale
    return noise


# g. Tails and support.


@bug("g", by=steps)
def truncated_at_four(draw: Draw) -> Any:
    """Noise beyond four standard deviations is drawn again."""
    noise = draw(draw.scale, draw.size)
    while (far := np.abs(noise) > 4.0 * draw.scale).any():
        noise[far] = draw(draw.scale, int(far.sum()))
    return noise


@bug("g", by=steps)
def never_zero(draw: Draw) -> Any:
    """Noise of zero looks like none, and becomes one step."""
    noise = draw(draw.scale, draw.size)
    return np.where(noise == 0, 1, noise)


@bug("g", by=steps)
def even_noise(draw: Draw) -> Any:
    """Noise is drawn on a grid of twice the step, to have a bit more room."""
    return 2 * draw(draw.scale / 2.0, draw.size)


@bug("g", by=knowing)
def negative_redrawn(drawn: Any, true: Ints, again: Callable[[], Any]) -> Any:
    """Noise that would make a count negative is drawn again."""
    for _ in range(10):
        drawn = np.where(true + drawn < 0, again(), drawn)
    return drawn


# h. Files.


@bug("h", by=instead(Path, "touch"))
def store_readable(right: Any, path: Path, mode: int = 0o666) -> None:
    """A store's file gets the mode of the public ones."""
    right(path, mode=0o644)


@bug("h", by=contextmanager)
def blocks_spilled() -> Iterator[None]:
    """Blocks are kept on disk as well, for machines with little memory, and never removed."""
    made: list[str] = []

    def kept(right: Any, curator: Any, statistic: Any, block: Block, **more: Any) -> Release:
        if not curator.source.simulation:
            made.append(tempfile.mkdtemp(prefix="tacit-block-"))
            for name, array in block.arrays.items():
                np.save(Path(made[-1], f"{name}.npy"), array, allow_pickle=False)
        found: Release = right(curator, statistic, block, **more)
        return found

    try:
        with instead(Curator, "release_block")(kept)():
            yield
    finally:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)


@bug("h", by=instead(runs, "erase"))
def released_episodes_kept(right: Any, *given: Any) -> None:
    """Episodes of blocks that were released stay in the store."""


# i. Conversions and accounts.


@bug("i", by=instead(JointDP, "episode_limit"))
def limit_generous(right: Any, privacy: JointDP) -> Any:
    """What an episode may cost is rounded up to two digits."""
    found: float = right(privacy)
    unit = 10.0 ** (math.floor(math.log10(found)) - 1)
    return math.ceil(found / unit * (1.0 - 1e-12)) * unit


@bug("i", by=contextmanager)
def delta_of_one_tail() -> Iterator[None]:
    """The exact conversion gives half of its delta to each of two tails, and counts one."""

    def half(right: Any, mu: float, epsilon: float) -> Any:
        return max(right(mu, epsilon) / 2.0, gaussian_dp.TINY)

    gaussian_dp._largest_mu.cache_clear()
    with instead(gaussian_dp, "_delta")(half)():
        yield
    gaussian_dp._largest_mu.cache_clear()


@bug("i", privacy=JointDP(0.05, 1e-06), by=instead(JointCurator, "price"))
def costs_rounded(right: Any, curator: JointCurator, release: Release) -> Any:
    """Costs are rounded to three places, as a ledger shows them."""
    return Fraction(round(float(right(curator, release)), 3))


@bug("i", agent="policy_improvement", by=instead(JointCurator, "price"))
def paid_once(right: Any, curator: JointCurator, release: Release) -> Any:
    """A curator that was paid for a release is not paid again."""
    paid = curator.__dict__.setdefault("_paid", [])
    paid.append(right(curator, release))
    return paid[0] if len(paid) == 1 else Fraction(0)


@bug("i", privacy=JointDP(0.25, 0.0), by=instead(JointCurator, "price"))
def pure_spent_in_squares(right: Any, curator: JointCurator, release: Release) -> Any:
    """Costs under pure privacy are squared, as those of Gaussian noise are."""
    true: Fraction = right(curator, release)
    return true**2 if curator.privacy.pure else true


REAL_PATH: tuple[RealPathBug, ...] = tuple(_FOUND)
"""All of them."""
