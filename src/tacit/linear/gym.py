"""Linear MDPs as environments of Gymnasium.

Importing this module registers the built-in worlds: ``tacit/TwoState-v0`` and ``tacit/Simplex-v0``.
"""

from __future__ import annotations

from tacit.finite.env import FiniteEnv, family_envs
from tacit.linear import worlds

_NAMES = {"TwoState": "two_state", "Simplex": "simplex"}
make_env, register_envs = family_envs(__name__, FiniteEnv, worlds, _NAMES)
