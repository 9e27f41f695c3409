"""Second moments of users' states, controls and next states, for linear-quadratic agents."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from tacit.lq.spec import check_array, check_number
from tacit.privacy.budget import Relation
from tacit.privacy.reading import as_codes, as_numbers, require_shape
from tacit.privacy.sensitivity import ACUTE, ball
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic, StreamedBlock
from tacit.privacy.validation import positive, whole_number

# Stands for an array that was not given, whose shape depends on other fields.
_NOT_GIVEN = partial(np.empty, 0)


@dataclass(frozen=True, eq=False)
class TrajectorySums(Statistic):
    """Sums over a user's steps of p p' and p r', released jointly.

    A step has z = (x, u), of n + d coordinates, and the next state x'. Inputs are p = M z with a
    public matrix M (``inputs``), residuals r = x' - T'z with a public model T (``centre``): the
    better T is, the shorter residuals are, and the less noise they need. Since r = (Theta - T)'z +
    w, the regression of r on z tells by how much T is wrong. Parts: ``gram`` (of p), symmetric, and
    ``cross``, with weight W = ``weight``.

    Reads ``states`` (users, H + 1, n), ``actions`` (users, H, d) and ``lengths`` (users,). A step
    counts if it came before the end of the episode and all its values are finite.

    How a user is bounded: residuals are cut at the length cap(z) = ``floor`` + |spread' z|; a step
    costs e = |p|^2 + W^2/2 cap(z)^2, and counts with weight s = min(1, what is left of tau / e).
    The weight of a step depends on what came before it and on z, never on the next state. So the
    noise w still has mean zero given all of it, and the sums tell the truth on average whatever tau
    is, as long as the cap does not cut. A small tau looks at the first steps only.

    Formal guarantees:
        Sensitivity sqrt(2) tau, and tau against zero. Let y = [p; (W / sqrt 2) r], so that
        |y|^2 <= e, and Y = sum s y y' over the steps. Y is positive semidefinite with trace
        sum s |y|^2 <= sum s e <= tau. For another user's Y* the squared distance is that of the
        parts gram and cross of Y and Y*, of which W cross is sqrt 2 times a block that is in Y
        twice: it is at most |Y - Y*|_F^2 = |Y|^2 + |Y*|^2 - 2 <Y, Y*> <= 2 tau^2, as <Y, Y*> >= 0
        for semidefinite matrices. Long p with cap(z) beside it of no account attain it in the
        limit; exactly, if ``floor`` is 0 and the spread does not reach some p.
    """

    name = "trajectory sums"
    _adds_bounded = True  # its loop brings each user within tau before it adds her

    states: int  # n
    controls: int  # d
    steps: int  # H
    tau: float  # see above
    weight: float = 1.0  # W
    centre: Floats = field(default_factory=_NOT_GIVEN)  # T, (n + d, n); zero if not given
    # M, (n + d, n + d); the identity if not given.
    inputs: Floats = field(default_factory=_NOT_GIVEN)
    floor: float = 0.0  # of the cap
    # Of the cap, (n + d, n + d); zero if not given.
    spread: Floats = field(default_factory=_NOT_GIVEN)

    def __post_init__(self) -> None:
        for name in ("states", "controls", "steps"):
            whole_number(name, getattr(self, name))
        for name in ("tau", "weight"):
            positive(name, getattr(self, name))
        check_number("floor", self.floor)
        p, n = self.rows, self.states
        defaults = {"centre": np.zeros((p, n)), "inputs": np.eye(p), "spread": np.zeros((p, p))}
        for name, default in defaults.items():
            given = getattr(self, name)
            array = default if np.size(given) == 0 else given
            object.__setattr__(self, name, check_array(name, array, *default.shape))

    @property
    def rows(self) -> int:
        """Coordinates of z, n + d."""
        return self.states + self.controls

    @cached_property
    def layout(self) -> Layout:
        """``gram`` and ``cross``."""
        gram = Part("gram", (self.rows, self.rows), symmetric=True)
        return Layout((gram, Part("cross", (self.rows, self.states), weight=self.weight)))

    def l2(self, relation: Relation) -> float:
        """Sensitivity, as the class derives it."""
        return ball(self.tau, relation, ACUTE)

    def vectors(self, block: Block) -> Floats:
        """Weighted outer products, user by user."""
        grams, crosses = self._sum(block, separate=True)
        return self.layout.pack({"gram": grams, "cross": crosses}, users=block.users)

    def total(self, block: Block) -> Floats:
        """The sum over users, compiled."""
        if block.aggregate or isinstance(block, StreamedBlock):
            return super().total(block)
        grams, crosses = self._sum(block, separate=False)
        return self.layout.pack({"gram": grams[0], "cross": crosses[0]})

    def _sum(self, block: Block, separate: bool) -> tuple[Floats, Floats]:
        from tacit.lq.control_loops import add_predictable

        p, lead = self.rows, block.users if separate else 1
        grams, crosses = np.zeros((lead, p, p)), np.zeros((lead, p, self.states))
        steps = _read_steps(block, self.states, self.controls, self.steps)
        public = self.centre, self.inputs, self.spread
        bounds = self.floor, 0.5 * self.weight**2, self.tau
        with np.errstate(all="ignore"):
            add_predictable(*steps, *public, *bounds, separate, grams, crosses)
        lower = np.tril_indices(p, -1)
        grams[:, lower[0], lower[1]] = grams[:, lower[1], lower[0]]
        return grams, crosses


def _read_steps(
    block: Block, states: int, controls: int, steps: int
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """States, controls and lengths of a block's users; shapes are public and may be refused."""
    shapes = {"states": (steps + 1, states), "actions": (steps, controls), "lengths": ()}
    for name, shape in shapes.items():
        require_shape(name, block[name], (block.users, *shape))
    # What is no number of steps is none.
    lengths = np.clip(as_codes("lengths", block["lengths"]), 0, steps)
    moved = (np.ascontiguousarray(as_numbers(name, block[name])) for name in ("states", "actions"))
    return *moved, lengths  # type: ignore[return-value]
