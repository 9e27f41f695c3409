"""Statistics: bounded maps from a user's data to numbers, with a declared sensitivity.

A :class:`Statistic` is the only thing that looks at raw data, and the only thing a curator sums.
It says what it computes (``layout``), how much one user can matter (``l2``, ``l1``), and maps raw
data to *bounded* vectors (``vectors``). The contract, which :func:`tacit.check_statistic` attacks:

1. **Bounded for any input.** Whatever the arrays hold, no user's vector is longer than the
   zero-out sensitivity, and no two users' vectors are farther apart than the replace-one
   sensitivity. Clipping does it, in the code beside the declaration; assumptions do not.
2. **Never raises on values, never spreads.** A user whose values are not finite or outside the
   declared space contributes the zero vector (which therefore counts as a possible neighbour),
   and changes nobody else's vector. Shapes and dtypes are public and may raise.
3. **Built from public values only.** A centre, a weight or a clip level taken from an earlier
   release makes a new statistic; nothing raw is a field of it.

**Symmetric matrices as plain vectors, so that Frobenius geometry becomes Euclidean geometry.**

``pack`` lists the lower triangle with the off-diagonal entries multiplied by sqrt 2. It is an
isometry from symmetric matrices with the Frobenius norm to vectors with the Euclidean norm:
||pack(M)||^2 = sum_i M_ii^2 + 2 sum_{i>j} M_ij^2 = ||M||_F^2. Isotropic Gaussian noise of
standard deviation s on the vector is therefore isotropic on the matrix: s on the diagonal,
s / sqrt 2 off it. For the same privacy it is smaller than s on every entry of the upper triangle.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import flag, positive, steady_repr, whole_number

Floats = NDArray[np.float64]


def packed_size(dimension: int) -> int:
    """The number of free entries of a symmetric matrix.

    >>> packed_size(3)
    6
    """
    return dimension * (dimension + 1) // 2


def pack(matrices: Floats) -> Floats:
    """The vectors, (..., d (d + 1) / 2), of one or of a stack of matrices, (..., d, d).

    An asymmetric one counts as (M + M') / 2: an orthogonal projection, so no distance grows.

    >>> pack(np.array([[1.0, 2.0], [2.0, 3.0]])).round(4).tolist()
    [1.0, 2.8284, 3.0]
    """
    rows, columns, scale = _triangle(matrices.shape[-1])
    return np.asarray((matrices[..., rows, columns] + matrices[..., columns, rows]) * scale)


def unpack(vectors: Floats, dimension: int) -> Floats:
    """The inverse of :func:`pack`.

    >>> m = np.array([[1.0, 2.0], [2.0, 3.0]])
    >>> bool(np.allclose(unpack(pack(m), 2), m))
    True
    """
    rows, columns, scale = _triangle(dimension)
    matrices = np.empty((*vectors.shape[:-1], dimension, dimension))
    entries = vectors / (2.0 * scale)
    matrices[..., rows, columns] = entries
    matrices[..., columns, rows] = entries
    return matrices


@lru_cache(maxsize=64)
def _triangle(dimension: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Row and column indices of the lower triangle, and what (M_ij + M_ji) is multiplied by."""
    rows, columns = np.tril_indices(dimension)
    scale = np.where(rows == columns, 0.5, math.sqrt(0.5))
    for array in (rows, columns, scale):
        array.setflags(write=False)
    return rows, columns, scale


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Numbers: TypeAlias = Floats | Ints
Made = TypeVar("Made")

# Users whose dense vectors are in memory at a time, in numbers.
_CHUNK = 1 << 22


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """The raw data of the users between two releases. Sensitive: it never leaves the curator.

    Attributes:
        users: how many users the block has (public).
        arrays: named arrays whose first axis is the user, unless ``aggregate``.
        aggregate: the arrays are already sums over users, from an exact simulation whose users
            are within bounds by construction. Nothing clips them, so curators take such blocks
            in simulations only.
    """

    users: int
    arrays: Mapping[str, NDArray[np.generic]]
    aggregate: bool = False

    def __post_init__(self) -> None:
        users = whole_number("users", self.users, least=0)
        object.__setattr__(self, "users", users)
        object.__setattr__(self, "aggregate", flag("aggregate", self.aggregate))
        if not isinstance(self.arrays, Mapping):
            raise InvalidArgument(f"arrays must be arrays by name, got {type(self.arrays)}")
        checked: dict[str, NDArray[np.generic]] = {}
        for name, array in self.arrays.items():
            # A list would get its dtype, and so its fate, from somebody's values.
            if not isinstance(array, np.ndarray):
                raise InvalidArgument(f"array {name!r} must be a NumPy array, got {type(array)}")
            if array.dtype.kind not in "biuf":
                raise InvalidArgument(f"array {name!r} must be numeric, got dtype {array.dtype}")
            if not self.aggregate and (array.ndim == 0 or array.shape[0] != self.users):
                raise InvalidArgument(
                    f"array {name!r} must have one row per user ({self.users}), "
                    f"got shape {array.shape}"
                )
            # Half and extended precision cannot be saved; a later refusal would cost budget.
            if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
                with np.errstate(all="ignore"):
                    array = array.astype(np.float64)
            checked[name] = array
        object.__setattr__(self, "arrays", checked)

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        try:
            return self.arrays[name]
        except KeyError:
            raise InvalidArgument(
                f"this block has no array {name!r}: {list(self.arrays)}"
            ) from None

    def take(self, rows: slice | Bools) -> Block:
        """The block of some of its users."""
        if self.aggregate:
            raise InvalidArgument("an aggregate block has no single users to take")
        arrays = {name: array[rows] for name, array in self.arrays.items()}
        users = len(range(*rows.indices(self.users))) if isinstance(rows, slice) else rows.sum()
        return Block(int(users), arrays)

    def sealed(self) -> Block:
        """A read-only copy: a reused buffer must not change it."""
        arrays = {name: np.array(array, copy=True) for name, array in self.arrays.items()}
        return frozen(Block(self.users, arrays, self.aggregate))

    def once(self, key: Hashable, make: Callable[[Block], Made]) -> Made:
        """The result of ``make`` for this block; cached if the block is read-only.

        So users who are asked again need not be read again. What is kept is as raw as they are.
        """
        kept: dict[Hashable, Any] = vars(self).setdefault("_made", {})
        if key in kept:
            return kept[key]  # type: ignore[no-any-return]
        made = make(self)
        if not any(array.flags.writeable for array in self.arrays.values()):
            kept[key] = made
        return made

    def __repr__(self) -> str:
        return f"<Block of {self.users} users>"


def frozen(block: Block) -> Block:
    """The block itself, whose arrays cannot be written to any more; for who owns them."""
    for array in block.arrays.values():
        array.setflags(write=False)
    return block


class StreamedBlock(Block):
    """A block too large for memory, whose simulated users are made part by part, when asked for.

    Every part is clipped like any other block, but all users are never held at once, so a
    curator takes it in simulations only, as it takes sums.

    Attributes:
        parts: yields blocks of some users each, the same ones every time it is called.
    """

    parts: Callable[[], Iterator[Block]]

    def __init__(self, users: int, parts: Callable[[], Iterator[Block]]) -> None:
        super().__init__(users, {}, aggregate=True)
        object.__setattr__(self, "parts", parts)

    def sealed(self) -> Block:
        """Itself: there is nothing yet that anybody could write to."""
        return self

    def sums(self, of: Callable[[Block], Numbers], zero: Numbers) -> Numbers:
        """Sum of ``of`` over its parts; they must have as many users as it has."""
        return self._whole([sum_of_piece(self.parts, of, zero)], zero)

    def _whole(self, found: Iterable[tuple[int, Numbers]], zero: Numbers) -> Numbers:
        users, total = 0, zero
        for of_them, part in found:
            users, total = users + of_them, total + part
        if users != self.users:
            raise InvalidArgument(f"a block of {self.users} users has parts of {users}")
        return total


class FiledBlock(StreamedBlock):
    """A block of real users that is read from files, piece by piece, whenever it is summed.

    Every part has a row for each episode, and is clipped like any other block: so a curator takes
    it in real runs too. Sums of pieces add up, wherever they were computed, and pass the gate once.
    Its maker has checked that no user has more than ``episodes_per_user`` episodes in it.

    Attributes:
        pieces: one for each job; each yields blocks of some users, the same ones every time.
        executor: any of :mod:`concurrent.futures` to do the jobs, or ``None``.
        episodes_per_user: the most of any user.
    """

    pieces: Sequence[Callable[[], Iterator[Block]]]

    def __init__(
        self,
        users: int,
        pieces: Sequence[Callable[[], Iterator[Block]]],
        episodes_per_user: int,
        executor: Executor | None = None,
    ) -> None:
        super().__init__(users, lambda: (part for piece in pieces for part in piece()))
        for name, value in (
            ("pieces", tuple(pieces)),
            ("executor", executor),
            ("episodes_per_user", episodes_per_user),
        ):
            object.__setattr__(self, name, value)

    executor: Executor | None
    episodes_per_user: int

    def sums(self, of: Callable[[Block], Numbers], zero: Numbers) -> Numbers:
        """Sum of ``of`` over its parts, by the executor if there is one."""
        if self.executor is None:
            return super().sums(of, zero)
        jobs = [self.executor.submit(sum_of_piece, piece, of, zero) for piece in self.pieces]
        return self._whole((job.result() for job in jobs), zero)


def sum_of_piece(
    piece: Callable[[], Iterator[Block]], of: Callable[[Block], Numbers], zero: Numbers
) -> tuple[int, Numbers]:
    """How many users a piece has, and what ``of`` makes of its parts, added up."""
    users, total = 0, zero
    for part in piece():
        users, total = users + part.users, total + of(part)
    return users, total


@dataclass(frozen=True)
class Part:
    """One array of a statistic.

    Attributes:
        name: what it is called in a release.
        shape: its shape; ``(..., d, d)`` when ``symmetric``.
        symmetric: its last two axes are a symmetric matrix.
        weight: its entries are multiplied by this before noise is added and divided by it after:
            a larger weight buys less noise here at the price of more sensitivity.
    """

    name: str
    shape: tuple[int, ...] = ()
    symmetric: bool = False
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.shape, (tuple, list)):
            raise InvalidArgument(f"part {self.name!r}: shape must be sizes, got {self.shape!r}")
        shape = tuple(whole_number(f"part {self.name!r}: shape", n) for n in self.shape)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "symmetric", flag("symmetric", self.symmetric))
        if self.symmetric and (len(self.shape) < 2 or self.shape[-1] != self.shape[-2]):
            raise InvalidArgument(f"part {self.name!r} is no stack of matrices: {self.shape}")
        positive(f"part {self.name!r}: weight", self.weight)

    @property
    def size(self) -> int:
        """Coordinates of the packed part."""
        if self.symmetric:
            return math.prod(self.shape[:-2]) * packed_size(self.shape[-1])
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """How a statistic's parts lie in one vector, in which Euclidean length is what counts.

    >>> layout = Layout((Part("gram", (2, 2), symmetric=True), Part("sum", (2,), weight=2.0)))
    >>> layout.size
    5
    >>> parts = layout.unpack(layout.pack({"gram": np.eye(2), "sum": [1.0, 3.0]}))
    >>> parts["gram"].tolist(), parts["sum"].tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [1.0, 3.0])
    """

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if not names or len(set(names)) < len(names):
            raise InvalidArgument(f"parts need different names, got {names}")

    @cached_property
    def size(self) -> int:
        """Coordinates of the packed vector."""
        return sum(part.size for part in self.parts)

    def pack(self, values: Mapping[str, ArrayLike], users: int | None = None) -> Floats:
        """Parts to vectors; with ``users`` every part has a leading axis of that length."""
        lead = () if users is None else (users,)
        packed = []
        for part in self.parts:
            array = np.asarray(values[part.name], dtype=np.float64)
            if array.shape != lead + part.shape:
                array = np.broadcast_to(array, lead + part.shape)
            vectors = (pack(array) if part.symmetric else array).reshape((*lead, part.size))
            packed.append(vectors if part.weight == 1.0 else part.weight * vectors)
        return np.concatenate(packed, axis=-1)

    def unpack(self, vector: Floats) -> dict[str, Floats]:
        """A vector to its parts."""
        values = {}
        ends = np.cumsum([part.size for part in self.parts])[:-1]
        for part, piece in zip(self.parts, np.split(vector, ends), strict=True):
            piece = piece / part.weight
            if part.symmetric:
                dimension = part.shape[-1]
                piece = unpack(piece.reshape(*part.shape[:-2], packed_size(dimension)), dimension)
            values[part.name] = piece.reshape(part.shape)
        return values

    def stds(self, scale: float) -> dict[str, float]:
        """Noise standard deviation per part when every coordinate has ``scale``."""
        return {part.name: scale / part.weight for part in self.parts}


@dataclass(frozen=True)
class Statistic(ABC):
    """A bounded map from a user's raw data to a vector; see the module for the contract."""

    name: str = field(init=False, default="statistic")
    _adds_bounded: ClassVar[bool] = False
    """Whether each user is within the declared bound before its own :meth:`total` adds her."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The parts and how they are weighted."""

    @abstractmethod
    def l2(self, relation: Relation) -> float:
        """Sensitivity in the 2-norm of the packed vector: all parts, the whole episode, jointly."""

    def l1(self, relation: Relation) -> float | None:
        """Sensitivity in the 1-norm; ``None`` where pure DP is not offered."""
        return None

    @property
    def nonnegative(self) -> bool:
        """Whether the declared distance of two users needs that no entry is negative.

        The gate sees to it: a user with a negative entry counts as zero. Of the rest no two are at
        an obtuse angle, so they are at most sqrt(2) times the zero-out sensitivity apart.
        """
        return False

    def monitored(self, release: Any) -> dict[str, tuple[Floats, Floats]]:
        """Population quantities that a release tells: sums, and the noise's deviations.

        ``rewards``, of all steps that count; ``visits``, of each state; ``partial``, if some of a
        user's valid steps do not count; ``unit``, what one visit adds, if it is not 1; ``range``
        of a user's rewards and ``reach`` of her visits, if they are not 0 to H. Nothing by default.
        """
        return {}

    @abstractmethod
    def vectors(self, block: Block) -> Floats:
        """One packed, bounded vector per user of a block that is not aggregate."""

    def aggregate(self, block: Block) -> Floats:
        """The sum over the users of an aggregate block, where the statistic supports it."""
        raise InvalidArgument(f"{self.name} cannot be computed from an aggregate block")

    @property
    def one_hots(self) -> int | None:
        """Into how many groups the coordinates fall, each at most one entry in [0, 1] per user.

        ``None`` where that is not so. Randomised response splits its budget evenly over them.
        """
        return None

    @property
    def fractional(self) -> Bools:
        """Which coordinates of a one-hot statistic may lie strictly between 0 and 1."""
        return np.ones(self.layout.size, dtype=bool)

    # The gate. A faster total of the package's own must be equal; check_statistic compares.

    def contributions(self, block: Block) -> Floats:
        """:meth:`vectors`, with the declared bound enforced, whatever they are.

        A user's vector that is not finite is zero, and so is one with a negative entry if the
        statistic is ``nonnegative``; a longer one is scaled to the bound, each user by herself.
        The bound holds but for rounding, which the grid allows for (:mod:`tacit.privacy.noise`).
        """
        if block.aggregate:
            raise InvalidArgument("an aggregate block has no single users")
        # A floating-point warning would be raw output.
        with np.errstate(all="ignore"):
            vectors = np.asarray(self.vectors(block), dtype=np.float64)
            if vectors.shape != (block.users, self.layout.size):
                raise InvalidArgument(
                    f"{self.name} must give vectors of shape {(block.users, self.layout.size)}, "
                    f"got {vectors.shape}"
                )
            return self._bounded(vectors)

    def _bounded(self, vectors: Floats) -> Floats:
        """Rows that are finite and within the declared bound."""
        longest, most = self.l2(Relation.ZERO_OUT), self.l1(Relation.ZERO_OUT)
        # What is not a number fails every comparison.
        good = np.sqrt(np.einsum("ij,ij->i", vectors, vectors)) <= longest
        if most is not None:
            good &= np.abs(vectors).sum(axis=1) <= most
        if self.nonnegative:
            good &= vectors.min(axis=1) >= 0.0
        if good.all():
            return vectors
        rows = vectors[~good]
        largest = np.abs(rows).max(axis=1, keepdims=True)
        heard = np.isfinite(largest) & (largest > 0.0)
        if self.nonnegative:
            heard &= rows.min(axis=1, keepdims=True) >= 0.0
        # Entries of at most 1, so that no length overflows.
        rows = np.where(heard, rows, 0.0) / np.where(heard, largest, 1.0)
        lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        factors = np.minimum(np.where(heard, largest, 0.0), longest / lengths)
        if most is not None:
            sums = np.maximum(np.abs(rows).sum(axis=1, keepdims=True), 1.0)
            factors = np.minimum(factors, most / sums)
        bounded = vectors.copy()
        bounded[~good] = rows * factors
        return bounded

    def total(self, block: Block) -> Floats:
        """The sum over a block's users: raw, and only ever seen by the curator."""
        if isinstance(block, StreamedBlock):
            return np.asarray(
                block.sums(partial(gate_total, self), np.zeros(self.layout.size)), dtype=np.float64
            )
        if block.aggregate:
            return np.asarray(self.aggregate(block), dtype=np.float64)
        size = self.layout.size
        total = np.zeros(size)
        step = max(1, _CHUNK // size)
        for start in range(0, block.users, step):
            total += self.contributions(block.take(slice(start, start + step))).sum(axis=0)
        return total

    @cached_property
    def _l1_bounds(self) -> tuple[float | None, float | None]:
        return self.l1(Relation.ZERO_OUT), self.l1(Relation.REPLACE_ONE)

    @cached_property
    def _l2_bounds(self) -> tuple[float, float]:
        return self.l2(Relation.ZERO_OUT), self.l2(Relation.REPLACE_ONE)

    def sensitivity(self, relation: Relation, norm: Literal["l1", "l2"]) -> float:
        """The declared bound, refused if it cannot be one.

        Zero is a neighbour of every user, so zero-out <= replace-one <= 2 zero-out: a wrong
        declaration is off by a factor of 2 at most, because the gate enforces the first. (By
        sqrt(2), if it is ``nonnegative``.)
        """
        zero, replace = self._l2_bounds if norm == "l2" else self._l1_bounds
        if zero is None or replace is None:
            raise InvalidArgument(
                f"{self.name} has no sensitivity in the 1-norm, so no pure DP: use delta > 0"
            )
        if not 0.0 < zero <= replace * (1.0 + 1e-9) <= 2.0 * zero * (1.0 + 1e-8) < 1e300:
            raise InvalidArgument(
                f"{self.name} declares sensitivities {zero!r} (zero-out) and {replace!r} "
                f"(replace-one): the second must be between the first and its double"
            )
        return zero if relation is Relation.ZERO_OUT else replace

    def check(self, block: Block) -> None:
        """Raises what a block's shapes, which are public, would raise later."""
        if isinstance(block, StreamedBlock):
            for part in block.parts():
                self.check(part)
                return
        elif block.aggregate:
            self.aggregate(block)
        else:
            self.contributions(block.take(slice(0, 0)))

    @property
    def fingerprint(self) -> str:
        """Identifies the statistic (its fields, layout and bounds, not its code) in saved files."""
        digest = hashlib.sha256()
        bounds = [(self.l2(relation), self.l1(relation)) for relation in Relation]
        digest.update(steady_repr((type(self).__qualname__, self.layout, bounds)).encode())
        for item in fields(self):
            value = getattr(self, item.name)
            digest.update(f"{item.name}={type(value).__name__}".encode())
            # The text of a large array leaves out its middle.
            is_array = isinstance(value, np.ndarray)
            digest.update(value.tobytes() if is_array else steady_repr(value).encode())
        return digest.hexdigest()[:32]


def gate_total(statistic: Statistic, block: Block) -> Floats:
    """The sum over a block's users that a curator publishes with noise.

    Users are summed one by one, none for more than was declared. A sum that a statistic computes
    by itself cannot be checked user by user, so it is taken from the package's own alone, and of
    those where each user is within bounds before she is added (``_adds_bounded``, which says why).
    A sum that is none of bounded vectors all the same is not believed.
    """
    if isinstance(block, StreamedBlock):
        return Statistic.total(statistic, block)
    if block.aggregate:
        return statistic.total(block)
    own = type(statistic).__module__.partition(".")[0] == __name__.partition(".")[0]
    if own and statistic._adds_bounded:
        most = block.users * statistic._l2_bounds[0] * (1.0 + 1e-9)
        # A floating-point warning would be raw output; what is not a number is not <= anything.
        with np.errstate(all="ignore"):
            total = statistic.total(block)
            signed = statistic.nonnegative and total.min() < 0.0
            if total @ total <= most * most and not signed:
                return total
    return Statistic.total(statistic, block)


class LoopSums(Statistic):
    """A statistic whose users a compiled loop sums at once, because none of them can be out of it.

    All that its loop takes from a user are codes, which are refused unless they are places in
    public tables of finite numbers, and rewards, which are in [0, 1] or refused. It adds finitely
    many products of these, and divides by nothing of hers. So what she adds is finite whatever she
    holds, and the class that declares the bound proves it for all of it. A loop that multiplies or
    divides by anything else of a user is none of these: its users come one by one.
    """

    _adds_bounded = True

    @property
    @abstractmethod
    def columns(self) -> Any:
        """Columns that it reads, a :class:`~tacit.privacy.reading.StepColumns`."""

    @abstractmethod
    def _sums(self, steps: Any, separate: bool) -> Floats:
        """One row per user of what :attr:`columns` read if ``separate``, else one for all."""

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        return self._sums(self.columns.read(block), separate=True)

    def total(self, block: Block) -> Floats:
        """The sum over users, without making their vectors."""
        if block.aggregate:
            return super().total(block)
        total: Floats = self._sums(self.columns.read(block), separate=False)[0]
        return total

    def check(self, block: Block) -> None:
        """Raises what a block's shapes, which are public, would raise later."""
        if block.aggregate:
            super().check(block)
        else:
            self.columns.read(block.take(slice(0, 0)))
