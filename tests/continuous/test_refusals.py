"""Arguments of continuous agents that are of no use: refused in words, before anything changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit import FittedFunctionalQ, JointDP, KernelLSVI
from tacit.continuous import (
    line,
)
from tacit.continuous.estimate import FunctionalConstants
from tacit.linear import two_state
from tacit.linear.spec import LinearSpec
from tacit.lq import double_integrator
from tacit.mixture import mixture_of_models
from tacit.mixture.spec import MixtureSpec
from tacit.privacy.errors import InvalidArgument

JOINT = JointDP(1.0, 1e-5)
WORLD = line(horizon=4)
NO_NUMBER = ("much", 1j, None, True, float("nan"), object(), [1.0])


@pytest.mark.parametrize(
    ("make", "name", "values"),
    [
        (FittedFunctionalQ, "serve", ("some", 1, [], np.ones(2))),
        (FittedFunctionalQ, "ends", ("no", 0, 1.0, [])),
        (FittedFunctionalQ, "constants", ({}, 0, "grid", FunctionalConstants)),
        (FittedFunctionalQ, "kernel", (1.0,)),
        (KernelLSVI, "scale", (1.0,)),
    ],
)
def test_options_are_refused_in_words(make, name, values, tmp_path: Path) -> None:
    for value in values:
        with pytest.raises(InvalidArgument, match=name):
            make(WORLD.spec, 10, JOINT, store=tmp_path / "runs.db", **{name: value})
    assert list(tmp_path.iterdir()) == []


def test_specs_and_worlds_are_refused_in_words() -> None:
    spec = two_state().spec
    sizes = {name: getattr(spec, name) for name in ("states", "actions", "horizon", "features")}
    moves = mixture_of_models(3, 4, 4, 4).spec
    names = ("states", "actions", "horizon", "transition_features", "known_rewards")
    other = {name: getattr(moves, name) for name in (*names, "reward_features")}
    for kind, own in ((LinearSpec, sizes), (MixtureSpec, other)):
        kind(**own, stationary_transitions=True, stationary_rewards=np.True_)
        for name in ("stationary_transitions", "stationary_rewards"):
            flags = {"stationary_transitions": True, "stationary_rewards": True}
            for value in ("no", 0, None, []):
                with pytest.raises(InvalidArgument, match=name):
                    kind(**own, **flags | {name: value})
    with pytest.raises(InvalidArgument, match=r"horizon .* would need"):
        double_integrator(horizon=10**10)
