"""What a privacy model answers, so that nobody asks for its class."""

import math

import pytest

from tacit import InvalidArgument, JointDP, LocalDP, NonPrivate

JOINT = JointDP(1.0, 1e-6)
PURE = JointDP(1.0, 0.0)
LOCAL = LocalDP(1.0, 1e-6)
LAPLACE = LocalDP(1.0, 1e-6, mechanism="laplace")
BITS = LocalDP(1.0, 0.0, mechanism="randomised response")
NONE = NonPrivate()
ALL = (JOINT, PURE, LOCAL, LAPLACE, BITS, NONE)


@pytest.mark.parametrize(
    ("name", "true"),
    [
        ("private", (JOINT, PURE, LOCAL, LAPLACE, BITS)),
        ("joint", (JOINT, PURE)),
        ("local", (LOCAL, LAPLACE, BITS)),
        ("pure", (PURE, BITS)),
        ("needs_l1", (PURE, LAPLACE, BITS)),
        ("reports_bits", (BITS,)),
        ("disjoint", ()),
        ("asks_again", (JOINT, PURE, NONE)),
    ],
)
def test_every_model_answers(name, true):
    for model in ALL:
        assert getattr(model, name) is (model in true), (name, model)
        with pytest.raises(AttributeError):
            setattr(model, name, True)


def test_what_an_episode_may_cost():
    mu = JOINT.budget.mu
    assert math.isclose(JOINT.episode_mu, mu)
    assert math.isclose(JointDP(1.0, 1e-6, episodes_per_user=3).episode_mu, mu / 3)
    disjoint = JointDP(1.0, 1e-6, episodes_per_user=4, disjoint=True)
    assert math.isclose(disjoint.episode_mu, mu / 2)
    assert LOCAL.episode_mu == mu
    assert math.isclose(LocalDP(1.0, 1e-6, episodes_per_user=4).episode_mu, mu / 2)
    assert NONE.episode_mu == math.inf
    for model in (PURE, LAPLACE, BITS):
        with pytest.raises(InvalidArgument, match="delta > 0"):
            _ = model.episode_mu
