"""Linear mixture MDPs as environments of Gymnasium; :mod:`tacit.envs` registers them."""

from __future__ import annotations

from tacit.finite.env import FiniteEnv, env_maker
from tacit.mixture import worlds

make_env = env_maker(FiniteEnv, worlds)
