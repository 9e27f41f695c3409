"""Users who are as far apart as they can be: they are users, and they are far apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from research.worlds import keyboard
from tacit import Relation, check_statistic
from tacit.mixture import mixture_of_models
from tacit.mixture.model_sums import ModelSums
from tacit.privacy.errors import InvalidArgument
from tacit.testing.worst_users import far_walkers, settled_users, worst_users

WORLD = mixture_of_models(3, 4, 4, 4, seed=700)


def tables(spec: Any) -> dict[str, Any]:
    """What regressions on a mixture are made of, as agents make it."""
    psi = spec.transition_features
    along = np.einsum("sadt,dk->sakt", psi, spec.directions)
    along /= np.sqrt((along**2).sum(axis=(2, 3)).max())
    return {
        "features": along,
        "mean": np.einsum("sadt,d->sat", psi, spec.center),
        "support": np.abs(psi).sum(axis=2) > 0,
        "horizon": spec.horizon,
    }


def test_walkers_make_possible_steps_or_drop_them() -> None:
    spec = keyboard().spec
    possible = np.abs(spec.transition_features).sum(axis=2) > 0
    sample = far_walkers(spec.transition_features, spec.horizon, spec.center, spec.directions)
    block = sample(np.random.default_rng(0), 300)
    states, actions, rewards = (block[name] for name in ("states", "actions", "rewards"))
    assert states.shape == (300, spec.horizon + 1)
    assert actions.shape == rewards.shape == (300, spec.horizon)
    counted = ~np.isnan(rewards)
    assert 0.1 < counted.mean() < 1.0
    assert possible[states[:, :-1], actions, states[:, 1:]][counted].all()
    assert set(rewards[counted]) == {0.0, 1.0}
    assert len(np.unique(np.hstack([states, actions]), axis=0)) > 10
    assert sample(np.random.default_rng(0), 0).users == 0
    again = sample(np.random.default_rng(0), 300)
    assert (again["states"] == states).all()


def test_mixtures_have_walkers_and_users_who_follow_the_policy() -> None:
    spec = WORLD.spec
    policy = np.full((spec.horizon, spec.states), 2)

    class Followed:
        actions = policy

    block = worst_users(spec, Followed())(np.random.default_rng(1), 400)
    follow = (block["actions"] == 2).all(axis=1)
    assert 0.4 < follow.mean() < 1.0
    assert (block["actions"][~follow] != 2).any()
    with pytest.raises(InvalidArgument, match="worst users"):
        worst_users(object())


@pytest.mark.parametrize(
    ("name", "statistic"),
    [
        ("clipped", ModelSums(**tables(WORLD.spec), pooled=True, clip=1.573)),
        ("per step", ModelSums(**tables(WORLD.spec))),
    ],
)
def test_what_is_declared_is_found(name: str, statistic: Any) -> None:
    del name
    found = check_statistic(statistic, worst_users(WORLD.spec), users=200, rounds=80, seed=1)
    assert found.tightness["replace-one l2"] > 0.95


def test_walkers_are_farther_apart_than_users_who_stay() -> None:
    spec = keyboard().spec
    statistic = ModelSums(**tables(spec))
    walkers = far_walkers(spec.transition_features, spec.horizon, spec.center, spec.directions)
    apart = []
    for sample in (walkers, settled_users(spec.states, spec.actions, spec.horizon)):
        vectors = statistic.vectors(sample(np.random.default_rng(2), 400))
        gaps = ((vectors[:, np.newaxis] - vectors) ** 2).sum(axis=2)
        apart.append(float(np.sqrt(gaps.max())))
    declared = statistic.l2(Relation.REPLACE_ONE)
    assert apart[1] < apart[0] <= declared * (1 + 1e-9)
    assert apart[0] > 0.7 * declared
