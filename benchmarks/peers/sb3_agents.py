"""Stable-Baselines3 on an environment of Gymnasium. Runs in ``.venv-sb3``, without Tacit.

``python sb3_agents.py CartPole-v1 500 0 run.json`` trains an agent with seed 0 in episodes of at
most 500 steps, and writes

    agent, steps, episodes: what learnt, from how much
    served: the mean return of the episodes that it learnt from
    greedy: that of 100 episodes afterwards, 1,000 of a table, of the policy without exploration
    seconds: processor time, evaluation included

Settings of the classic environments and of LunarLander are RL Zoo's
(github.com/DLR-RM/rl-baselines3-zoo, hyperparams/dqn.yml at ce95481 and ppo.yml at 00128b5), of an
agent that learns from few steps there; in CartPole PPO, after its DQN ended at 19.3. It has none
for tables and Blackjack: these have PPO with the library's own defaults and :data:`STEPS` steps.
What is numbered is one-hot, as the library does it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

STEPS = 100_000
_WIDE = {"net_arch": [256, 256]}
_OFF_POLICY = {
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    "policy_kwargs": _WIDE,
}


def falling(first: float) -> Any:
    """What falls to 0 with what is left of the steps."""
    return lambda left: left * first


# The agent, its steps, its environments side by side, and its settings.
ZOO: dict[str, tuple[Any, int, int, dict[str, Any]]] = {
    "CartPole": (
        PPO,
        100_000,
        8,
        {
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "ent_coef": 0.0,
            "learning_rate": falling(1e-3),
            "clip_range": falling(0.2),
        },
    ),
    "MountainCar": (
        DQN,
        120_000,
        1,
        {
            "learning_rate": 4e-3,
            "batch_size": 128,
            "buffer_size": 10_000,
            "learning_starts": 1000,
            "gamma": 0.98,
            "target_update_interval": 600,
            "train_freq": 16,
            "gradient_steps": 8,
            "exploration_fraction": 0.2,
            "exploration_final_eps": 0.07,
            "policy_kwargs": _WIDE,
        },
    ),
    "Acrobot": (DQN, 100_000, 1, _OFF_POLICY),
    "LunarLander": (DQN, 100_000, 1, _OFF_POLICY),
    "Pendulum": (
        PPO,
        100_000,
        4,
        {
            "n_steps": 1024,
            "gae_lambda": 0.95,
            "gamma": 0.9,
            "n_epochs": 10,
            "ent_coef": 0.0,
            "learning_rate": 1e-3,
            "clip_range": 0.2,
            "use_sde": True,
            "sde_sample_freq": 4,
        },
    ),
}


class Numbers(gymnasium.ObservationWrapper):
    """Observations of several numbers as one array, which the library takes."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = spaces.MultiDiscrete([part.n for part in env.observation_space])

    def observation(self, observation: Any) -> Any:
        """As an array."""
        return np.array(observation, dtype=np.int64)


def made(name: str, horizon: int) -> gymnasium.Env:
    """The environment, with episodes as long as ours."""
    env = gymnasium.make(name, max_episode_steps=horizon)
    return Numbers(env) if isinstance(env.observation_space, spaces.Tuple) else env


def main(name: str, horizon: str, seed: str, target: str) -> None:
    """Trains, evaluates and writes."""
    torch.set_num_threads(1)
    began = time.process_time()
    kind, steps, side_by_side, settings = ZOO.get(name.rpartition("-")[0], (PPO, STEPS, 1, {}))
    env = make_vec_env(lambda: made(name, int(horizon)), side_by_side, seed=int(seed))
    agent = kind("MlpPolicy", env, seed=int(seed), device="cpu", **settings)
    agent.learn(steps)
    returns = [value for each in env.envs for value in each.get_episode_rewards()]
    later = make_vec_env(lambda: made(name, int(horizon)), 1, seed=10_000 + int(seed))
    many = 100 if isinstance(env.observation_space, spaces.Box) else 1000
    greedy, _ = evaluate_policy(agent, later, many, deterministic=True)
    found = {
        "agent": kind.__name__,
        "steps": steps,
        "episodes": len(returns),
        "served": float(np.mean(returns)),
        "greedy": float(greedy),
        "seconds": time.process_time() - began,
    }
    with open(target, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
