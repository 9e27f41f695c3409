"""PPO of Stable-Baselines3, trained in a private simulator, on the true environment.

Runs in ``.venv-sb3`` with ``PYTHONPATH=src``: a simulator needs NumPy and Gymnasium alone.
``python sb3_simulator.py sim.npz CartPole-v1 0 run.json`` trains with seed 0 for 100,000 steps of
the simulator in episodes of at most 500, with RL Zoo's settings (see sb3_agents.py), and writes the
mean returns of 100 episodes inside and of 100 true ones; beside it, as run.npz, the actions that
the policy takes on a grid of states, of which ``agent.adopt`` takes a table.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from sb3_agents import ZOO
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from tacit.gym.simulators import load_simulator

GRID = 15  # points along each coordinate


def main(file: str, name: str, seed: int, target: str) -> None:
    """Trains, plays and writes."""
    began, (_, steps, several, given) = time.process_time(), ZOO[name.partition("-")[0]]
    inside = make_vec_env(lambda: load_simulator(file), several, seed=seed)
    agent = PPO("MlpPolicy", inside, seed=seed, device="cpu", **given)
    agent.learn(steps)
    found: dict[str, Any] = {"steps": steps, "seed": seed, "file": load_simulator(file).facts}
    for what, env in (("inside", load_simulator(file)), ("true", gymnasium.make(name))):
        env.reset(seed=1000 + seed)
        returns, _ = evaluate_policy(agent, env, 100, return_episode_rewards=True, warn=False)
        found[what] = float(np.mean(returns))
    box: Any = inside.observation_space
    axes = [np.linspace(low, high, GRID) for low, high in zip(box.low, box.high, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    actions = agent.predict(points, deterministic=True)[0]
    shape = (GRID,) * len(axes)
    table = {"lows": box.low, "highs": box.high, "shape": shape, "actions": actions}
    np.savez(target.removesuffix(".json"), **table)
    found["seconds"] = round(time.process_time() - began, 1)
    with open(target, "w") as out:
        json.dump(found, out)
    print({name: found[name] for name in ("inside", "true", "seconds")})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
