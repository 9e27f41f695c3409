"""A stream that asks something else of later blocks: the same noise, the same guarantee."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from tacit import Block, JointDP, Relation
from tacit.privacy.curator import JointCurator, Stream
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.standard import ClippedSum
from tacit.privacy.statistic import Layout, Part, Statistic
from tacit.testing.mechanisms import audit_linear

MODEL = JointDP(epsilon=1.0, delta=1e-6, relation=Relation.ZERO_OUT)
MU = MODEL.budget.mu


@dataclass(frozen=True, eq=False)
class Turned(Statistic):
    """A user's number, cut to [-1, 1], along a direction of the plane."""

    x: float
    y: float = 0.0
    weight: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "name", "turned")

    @property
    def layout(self):
        return Layout((Part("sum", (2,), weight=self.weight),))

    def l2(self, relation):
        return self.weight * math.hypot(self.x, self.y) * (1 + (relation is Relation.REPLACE_ONE))

    def l1(self, relation):
        return (abs(self.x) + abs(self.y)) * (1 + (relation is Relation.REPLACE_ONE))

    def vectors(self, block):
        cut = np.clip(np.asarray(block["values"], dtype=float), -1.0, 1.0)
        return self.layout.pack({"sum": cut * np.array([self.x, self.y])}, users=block.users)


def values(*rows):
    return Block(len(rows), {"values": np.array(rows, dtype=float).reshape(-1, 1)})


def audit(asked, kind):
    """The exact mu of a stream that asks these things of its blocks, one after the other."""

    def mechanism(inputs, source):
        curator = JointCurator(MODEL, source=source)
        stream = curator.stream(Turned(1.0), releases=len(asked), kind=kind)
        out = []
        for number, statistic in zip(inputs, asked, strict=True):
            if statistic is not None:
                stream.ask(statistic)
            out.append(stream.release_block(values(number))["sum"])
        return np.concatenate(out)

    return audit_linear(mechanism, list(np.eye(len(asked))), claimed=MU)


@pytest.mark.parametrize("kind", ["blocks", "smooth tree", "optimal"])
def test_the_cost_is_that_of_each_users_own_question(kind):
    asked = [None, Turned(0.6, 0.8), Turned(-1.0), Turned(0.3, -0.4), None, Turned(0.0, 1.0)]
    found = audit(asked, kind)
    assert found.passed
    plain = audit([None] * len(asked), kind)
    lengths = np.array([1.0, 1.0, 1.0, 0.5, 0.5, 1.0])
    # But for what is rounded to the grid, and by buffers.
    assert found.costs == pytest.approx(lengths * plain.costs, rel=3e-4)
    assert found.mu == pytest.approx(plain.mu, rel=3e-4)


def test_questions_may_depend_on_releases():
    # The second user is asked along a direction that the first release chose. Given that, the
    # likelihood ratio of her presence is that of one Gaussian of mu, as if nothing was chosen.
    ratios = []
    for seed in range(400):
        stream = MODEL.curator(noise_seed=seed).stream(Turned(1.0), releases=2, kind="blocks")
        first = stream.release_block(values(1.0))["sum"]
        direction = first / np.linalg.norm(first)
        stream.ask(Turned(*direction))
        own = stream.release_block(values(1.0))["sum"] - first
        ratios.append((own @ direction - 0.5) / float(stream.std[0]) ** 2)
    assert np.mean(ratios) == pytest.approx(MU**2 / 2, abs=4 * MU / 20)
    assert np.var(ratios) == pytest.approx(MU**2, rel=0.35)


def stream_of(statistic, model=MODEL, kind="auto", seed=1):
    return model.curator(noise_seed=seed).stream(statistic, releases=4, kind=kind)


def test_what_needs_more_noise_is_refused():
    stream = stream_of(Turned(1.0))
    before = stream.statistic
    for other in (
        Turned(1.0 + 1e-9),
        Turned(0.8, 0.7),
        Turned(1.0, weight=0.5),
        Turned(0.5, weight=2.0),
        ClippedSum(2, radius=1.001),
        ClippedSum(1),
    ):
        with pytest.raises(InvalidArgument):
            stream.ask(other)
        assert stream.statistic is before
    stream.ask(ClippedSum(2, radius=1.0))
    stream.ask(Turned(1e-3))
    # Asking less does not make the noise less: the next may ask all again.
    stream.ask(Turned(1.0))


def test_the_relation_and_the_norm_are_the_budgets():
    replace = stream_of(ClippedSum(2, radius=1.0), JointDP(1.0, 1e-6))
    replace.ask(Turned(0.6, 0.8))
    with pytest.raises(InvalidArgument, match="sensitivity of 2"):
        replace.ask(Turned(1.0, 0.1))
    pure = stream_of(Turned(1.0), JointDP(1.0, 0.0))
    pure.ask(Turned(0.5, 0.5))
    with pytest.raises(InvalidArgument, match=r"sensitivity of 2\.0000., not 2\.8"):
        pure.ask(Turned(0.6, 0.8))


def test_a_revived_stream_goes_on_with_its_noise():
    for seed, kind in ((2, "auto"), (4, "smooth tree"), (5, "blocks")):
        streams = []
        for _ in range(2):
            stream = stream_of(Turned(1.0), JointDP(1.0, 1e-6), kind, seed)
            stream.ask(Turned(0.3, 0.4))
            stream.release_block(values(1.0))
            streams.append(stream)
        straight, old = streams
        again = Stream.revived(old._curator, Turned(0.3, 0.4), old.dump())
        # The noise is still for what it was made for.
        assert again.std == pytest.approx(straight.std)
        with pytest.raises(InvalidArgument, match="sensitivity of 2"):
            again.ask(Turned(1.1))
        for stream in (straight, again):
            stream.ask(Turned(0.0, -1.0))
        one, other = (stream.release_block(values(1.0)) for stream in (straight, again))
        assert np.array_equal(one["sum"], other["sum"])
        assert (one.users, one.cost) == (other.users, other.cost) == (2, MU)


def test_a_stream_that_asks_too_much_is_caught(monkeypatch):
    def ask(self, statistic):
        self.statistic = statistic

    monkeypatch.setattr(Stream, "ask", ask)
    assert not audit([None, Turned(1.2), None], "blocks").passed
