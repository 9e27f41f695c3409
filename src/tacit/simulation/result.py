"""What a run did: users served, values of the policies, regret, and how soon it was good.

Release r is the policy that is published after ``served[r]`` users; release 0 is there before the
first user. It serves block r, the users up to ``served[r + 1]``. The last release comes after the
last user and serves nobody. All values are exact expectations in the simulated world, which no
agent ever sees.

Headlines are about the policies that served users. The greedy policy, which an agent publishes
beside them and which served nobody, has figures of its own, under its name.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.budget import Guarantee
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.files import MALFORMED, only_numbers
from tacit.privacy.validation import instance_of, whole_number

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

GOOD_LOSS = 0.1  # a policy with less is good: it has 90 % of what there is to gain

WORLD_VALUES = ("optimal_value", "baseline_value", "reference_value")  # of a world

_SUMMARY = (
    *("users", "releases", "served_value", "final_value", "score", "greedy_value", "greedy_score"),
    *("regret", "users_to_90", "settled", "greedy_users_to_90"),
)


def users_to_90(served: ArrayLike, losses: ArrayLike) -> int | None:
    """How many users were served before the policies became good, and stayed so.

    It is ``served[r]`` of the first release r such that for *every* later release r' the mean loss
    of the users served from r to r' is below 0.1; ``None`` if there is no such release. There are R
    + 1 releases, from 0 users on, and the losses of the policies that serve the R blocks between
    them.

    With d_k = (users of block k) (loss_k - 0.1), the mean loss from r to r' is below 0.1 iff d_r +
    ... + d_(r'-1) < 0. The largest of these sums is m_r = d_r + max(0, m_(r+1)).

    >>> users_to_90([0, 10, 20, 40], [0.9, 0.05, 0.09])
    10
    >>> users_to_90([0, 10, 20, 40], [0.9, 0.05, 0.2]) is None
    True
    """
    ends = np.asarray(served, dtype=np.int64)
    excess = np.diff(ends) * (np.asarray(losses, dtype=np.float64) - GOOD_LOSS)
    largest, first = 0.0, None
    for r, d in reversed(list(enumerate(excess.tolist()))):
        largest = d + max(0.0, largest)
        if largest < 0.0:
            first = r
        elif math.isnan(largest):
            break
    return None if first is None else int(ends[first])


def greedy_users_to_90(served: ArrayLike, losses: ArrayLike) -> int | None:
    """Users served before the first release whose loss, and that of all later ones, is below 0.1.

    >>> greedy_users_to_90([0, 10, 20, 40], [0.05, 0.3, 0.05, 0.01])
    20
    """
    ends = np.asarray(served, dtype=np.int64)
    bad = ~(np.asarray(losses, dtype=np.float64) < GOOD_LOSS)
    first = int(np.flatnonzero(bad)[-1]) + 1 if bad.any() else 0
    return int(ends[first]) if first < len(ends) else None


class Digests(UserDict[str, str]):
    """Digests that are made when they are first looked at; it is pickled as a plain dict."""

    def __init__(self, make: Callable[[], dict[str, str]]) -> None:
        self._make = make

    data = cached_property(lambda self: self._make())

    def __reduce__(self) -> Any:
        return dict, (self.data,)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Result:
    """One run of one agent in one simulated world.

    Attributes:
        agent: the agent's name.
        world: the world's name, which rebuilds it.
        privacy: the privacy model that the agent was given, in words.
        seed: of the world, of the labels of the actions and of the agent's exploration.
        served: users served at each release, R + 1 of them, from 0 on.
        values: exact value of the policy that each release serves users with.
        greedy_values: exact value of the greedy policy, without bonus, published beside it.
        optimal_value: the best that any policy reaches; NaN where it is not known, and then regret,
            losses and the score are NaN as well.
        baseline_value: the value of not having learnt anything.
        reference_value: the zero point of losses.
        guarantee: what was proven for the users, or ``None``.
        seconds: where the time went; not part of what is reproducible.
        identity: digests of ``world``, ``agent`` and ``code``, and the options that were set.
        control: values of the same agent where it learnt from noise alone, if that was asked for:
            ``served_value``, ``greedy_value``, and the ``best_value`` of its policies; and the
            ``users_needed`` to be better than it, or ``users_too_few`` for that.
        policy: the last greedy policy, in the world's labels; files of results have none.

    >>> result = Result(
    ...     agent="toy", world="coin", privacy="NonPrivate()", seed=0, served=[0, 10, 100],
    ...     values=[0.5, 0.75, 1.0], greedy_values=[0.5, 0.98, 1.0], optimal_value=1.0,
    ...     baseline_value=0.5, reference_value=0.0)
    >>> result.regret.tolist(), result.greedy_users_to_90, result.users_to_90
    ([0.0, 5.0, 27.5], 10, None)
    >>> result.served_value, result.final_value, result.greedy_value
    (0.725, 0.75, 1.0)
    >>> result.score, result.greedy_score
    (0.5, 1.0)
    """

    agent: str
    world: str
    privacy: str
    seed: int
    served: Ints
    values: Floats
    greedy_values: Floats
    optimal_value: float
    baseline_value: float
    reference_value: float
    guarantee: Guarantee | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)
    control: Mapping[str, float] = field(default_factory=dict)
    policy: Any = None

    def __post_init__(self) -> None:
        for name in ("agent", "world", "privacy"):
            instance_of(name, getattr(self, name), str)
        instance_of("guarantee", self.guarantee, (Guarantee, NoneType))
        instance_of("identity", self.identity, Mapping)
        fixed: dict[str, Any] = {"served": _served(self.served)}
        fixed["seed"] = whole_number("seed", self.seed, least=0)
        for name in ("values", "greedy_values"):
            fixed[name] = _finite(name, getattr(self, name))
            if fixed[name].shape != fixed["served"].shape:
                raise InvalidArgument(f"{name} must have a value for each of the releases served")
            fixed[name].flags.writeable = False
        for name in WORLD_VALUES:
            value = getattr(self, name)
            # JSON has null for an optimum that nobody knows.
            unknown = name == "optimal_value" and (value is None or value != value)
            fixed[name] = math.nan if unknown else float(_finite(name, value))
        for name in ("seconds", "control"):
            told = getattr(self, name) or {}
            fixed[name] = {key: float(_finite(name, value)) for key, value in told.items()}
        for name, value in fixed.items():
            object.__setattr__(self, name, value)

    @property
    def users(self) -> int:
        """Users served in all."""
        return int(self.served[-1])

    @property
    def releases(self) -> int:
        """How many policies were published after the first one, which knows nothing."""
        return len(self.served) - 1

    @property
    def regret(self) -> Floats:
        """Exact pseudo-regret of all users served so far, at each release."""
        gaps = np.diff(self.served) * (self.optimal_value - self.values[:-1])
        return np.concatenate([[0.0], np.cumsum(gaps)])

    @property
    def losses(self) -> Floats:
        """Loss of the policy that serves users, at each release: 0 is optimal, 1 the reference."""
        gap = self.optimal_value - self.reference_value
        return _ratio(self.optimal_value - self.values, gap)

    @property
    def greedy_losses(self) -> Floats:
        """Loss of the greedy policy, at each release."""
        gap = self.optimal_value - self.reference_value
        return _ratio(self.optimal_value - self.greedy_values, gap)

    @property
    def users_to_90(self) -> int | None:
        """Users served until served users lose less than 10 %, for good; see the function."""
        return users_to_90(self.served, self.losses[:-1])

    @property
    def greedy_users_to_90(self) -> int | None:
        """Users served until the greedy policy loses less than 10 %, for good."""
        return greedy_users_to_90(self.served, self.greedy_losses)

    @property
    def settled(self) -> bool:
        """Whether it went on for 10 times ``users_to_90``: only then that is comparable."""
        users = self.users_to_90
        return users is not None and self.users >= 10 * users

    @property
    def served_value(self) -> float:
        """Mean value of the policies that served users, by users; NaN if there were none."""
        users = np.diff(self.served)
        return float(np.average(self.values[:-1], weights=users)) if len(users) else math.nan

    @property
    def first_value(self) -> float:
        """Value of the policy that served before anything was learnt."""
        return float(self.values[0])

    @property
    def verdict(self) -> str:
        """Rivals that it is better than, or is not, in words; see :mod:`.verdict`."""
        from tacit.simulation.verdict import verdict

        return verdict([self])

    @property
    def final_value(self) -> float:
        """Value of the policy that served the last block: what the last users got."""
        return float(self.values[-2:][0])

    @property
    def greedy_value(self) -> float:
        """Value of the last greedy policy, for those who come later."""
        return float(self.greedy_values[-1])

    @property
    def scores(self) -> Floats:
        """Value of each release between the baseline, 0, and the optimum, 1; NaN if unknown."""
        gap = self.optimal_value - self.baseline_value
        return _ratio(self.values - self.baseline_value, gap)

    @property
    def score(self) -> float:
        """Value of the last block between the baseline, 0, and the optimum, 1; NaN if unknown."""
        return float(self.scores[-2:][0])

    @property
    def greedy_score(self) -> float:
        """The last greedy policy between the baseline, 0, and the optimum, 1; NaN if unknown."""
        gap = self.optimal_value - self.baseline_value
        return float(_ratio(self.greedy_values - self.baseline_value, gap)[-1])

    @property
    def summary(self) -> dict[str, Any]:
        """Figures that follow from the rest, as plain values; ``None`` where not known."""
        values = {name: getattr(self, name) for name in _SUMMARY}
        values["regret"] = float(self.regret[-1])
        plain = {k: None if v is None or math.isnan(v) else v for k, v in values.items()}
        return plain | {"verdict": self.verdict}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # equal by content, which is large

    def __repr__(self) -> str:
        return (
            f"<Result of {self.agent} on {self.world}, {self.users:,} users, seed {self.seed}, "
            f"served {self.served_value:.4g}, greedy {self.greedy_value:.4g}>"
        )

    def __str__(self) -> str:
        rows = {"greedy policy": f"{self.greedy_value:.4g} in the end, served to nobody"}
        if not math.isnan(self.optimal_value):
            rows["greedy policy"] += f" (score {self.greedy_score:.3f})"
            regret = self.regret[-1]
            rows["regret"] = f"{regret:,.4g}, or {regret / max(1, self.users):.4g} per user"
            greedy = f"(greedy policy: {users_words(self.greedy_users_to_90)})"
            rows["users to 90 %"] = f"{users_words(self.users_to_90)} {greedy}"
        rows["verdict"] = self.verdict
        rows["guarantee"] = "none" if self.guarantee is None else self.guarantee.short
        if self.users_to_90 is not None and not self.settled:
            rows["users to 90 %"] += "; the run is shorter than 10 times that"
        if "total" in self.seconds:
            rows["time"] = f"{self.seconds['total']:.3g} s"
        rows["run"] = f"{self.releases:,} releases, seed {self.seed}"
        lines = (f"  {name:<14}{text}" for name, text in rows.items())
        return "\n".join([served_words([self]), *lines])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values: what was measured, and for readers what follows from it."""
        known = {name: getattr(self, name) for name in _STORED}
        for name, value in known.items():
            if isinstance(value, (Mapping, np.ndarray)):
                known[name] = dict(value) if isinstance(value, Mapping) else value.tolist()
        told = None if self.guarantee is None else self.guarantee.to_dict()
        best = or_none(self.optimal_value)
        return known | {"guarantee": told, "summary": self.summary, "optimal_value": best}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Result:
        """The inverse of :meth:`to_dict`; a CorruptFile where anything is not as it should be."""
        expected, values = {*_STORED, "summary"}, {"control": {}} | dict(values)
        if wrong := sorted(map(str, expected ^ values.keys())):
            raise CorruptFile(
                f"missing or unknown in a result: {textwrap.shorten(str(wrong), 500)}"
            )
        fields = {name: values[name] for name in _STORED}
        if not all(only_numbers(fields[name]) for name in ("served", "values", "greedy_values")):
            raise CorruptFile("a result holds values that are no numbers")
        told = fields["identity"]
        if not isinstance(told, dict) or not all(isinstance(one, str) for one in told.values()):
            raise CorruptFile("a result's identity must be texts")
        if fields["guarantee"] is not None:
            fields["guarantee"] = Guarantee.from_dict(fields["guarantee"])
        try:
            return cls(**fields)
        except MALFORMED as error:
            raise CorruptFile(f"a result holds a value that is not valid: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it; see :func:`tacit.simulation.tables.save_results`."""
        from tacit.simulation.tables import save_results

        save_results({self.agent: [self]}, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Reads what :meth:`save` wrote, or any file of one run."""
        from tacit.simulation.tables import load_results

        runs = [run for several in load_results(path).values() for run in several]
        if len(runs) != 1:
            where = "tacit.simulation.tables.load_results reads them"
            raise CorruptFile(f"{os.fspath(path)!r} has {len(runs)} runs: {where}")
        return runs[0]

    def to_frame(self) -> Any:
        """A row per release, as a data frame of pandas."""
        from tacit.simulation.tables import frame

        return frame({self.agent: [self]})

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draws regret and values; see :func:`tacit.simulation.plots.plot_results`."""
        from tacit.simulation.plots import plot_results

        return plot_results({self.agent: [self]}, path)


_STORED = tuple(name for name in Result.__dataclass_fields__ if name != "policy")


def _ratio(parts: Floats, gap: float) -> Floats:
    """Parts of what there is to gain; a gap of nothing would overflow."""
    return parts / gap if gap > 1e-100 else np.full(parts.shape, np.nan)


def median(values: Iterable[float | None]) -> float | None:
    """The median, where ``None`` stands for infinity, or ``None`` if it is infinite.

    >>> median([3, None, 5]), median([3, None]), median([3, 4, 5, None])
    (5, None, 4.5)
    """
    ordered = sorted(math.inf if value is None else value for value in values)
    if not ordered:
        return None
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    if not math.isfinite(middle):
        return None
    return int(middle) if middle == int(middle) and isinstance(ordered[0], int) else middle


def users_words(users: float | None) -> str:
    """A number of users for people.

    >>> users_words(12345), users_words(None)
    ('12,345', 'not reached')
    """
    return "not reached" if users is None else f"{math.ceil(users):,}"


def served_words(results: Sequence[Result], label: str | None = None) -> str:
    """The headline of runs of one agent on one world: what served users got, by medians."""
    first = results[0]
    got, last, score, begun = (
        median(or_none(getattr(result, name)) for result in results)
        for name in ("served_value", "final_value", "score", "first_value")
    )
    known = f"possible {first.optimal_value:.4g}, "
    if math.isnan(first.optimal_value):
        known = "the optimum is not known, "
    what = f"{label or first.agent} on {first.world}: {first.users:,} users"
    if got is None or last is None or begun is None:
        return what
    scored = "" if score is None else f" (score {score:.3f})"
    known += f"without learning {first.baseline_value:.4g}, the first policy {begun:.4g}"
    if beside := next((result.control for result in results if result.control), None):
        known += f", learning from noise alone {beside['served_value']:.4g}"
    return f"{what} got {got:.4g} each, the last of them {last:.4g}{scored}; {known}"


def _served(served: ArrayLike) -> Ints:
    array = np.array(served)
    right = array.ndim == 1 and array.size > 0 and array.dtype.kind in "iu" and array[0] == 0
    if not right or np.any(array[1:] <= array[:-1]):
        raise InvalidArgument("served must be whole numbers from 0 on, growing at every release")
    ends = array.astype(np.int64)
    ends.flags.writeable = False
    return ends


def _finite(name: str, values: ArrayLike) -> Floats:
    array = np.array(values)
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise InvalidArgument(f"{name} must hold finite numbers")
    return array.astype(np.float64)


def or_none(value: float) -> float | None:
    """A number, or ``None`` where it is not known: JSON has no word for NaN."""
    return None if math.isnan(value) else value
