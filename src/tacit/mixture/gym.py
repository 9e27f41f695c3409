"""Linear mixture MDPs as environments of Gymnasium.

Importing this module registers the built-in worlds: ``tacit/HardMixture-v0``,
``tacit/Keyboard-v0`` and ``tacit/MixtureOfModels-v0``.
"""

from __future__ import annotations

from tacit.finite.env import FiniteEnv, family_envs
from tacit.mixture import worlds

_NAMES = {
    "HardMixture": "hard_mixture",
    "Keyboard": "keyboard",
    "MixtureOfModels": "mixture_of_models",
}
make_env, register_envs = family_envs(__name__, FiniteEnv, worlds, _NAMES)
