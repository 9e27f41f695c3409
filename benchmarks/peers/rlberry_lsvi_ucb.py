"""rlberry-scool's LSVI-UCB on the worlds of a file. Runs in ``.venv-peers``, without Tacit.

``python rlberry_lsvi_ucb.py worlds.npz runs.npz`` reads

    transitions (n, S, A, S), rewards (n, S, A), means of Bernoulli rewards, start (S,), features
    (S, A, d), seeds (n,), horizon, episodes, and compiled (whether to compile its planner with
    numba)

and writes for each of the n runs

    seconds (n, episodes): processor time of every episode, its steps and its replanning together
    returns (n, episodes): the sum of its rewards
    actions (n, H, S): the policy that it would follow at the end, without a bonus

The agent is the library's own: stationary, undiscounted, its default bonus and regularisation,
replanning after every episode. Only the clock is added. Its bonus shrinks during an episode, so
that what it follows is no policy of the state alone; returns say how well it did.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import rlberry
from rlberry_scool.agents.features import FeatureMap
from rlberry_scool.agents.linear import lsvi_ucb
from rlberry_ucbvi import BernoulliMDP


class Table(FeatureMap):
    """Features that are looked up."""

    def __init__(self, features: np.ndarray) -> None:
        self.features = features
        self.shape = features.shape[2:]

    def map(self, observation: int, action: int) -> np.ndarray:
        """Those of one state and action."""
        return self.features[observation, action]


class Clocked(lsvi_ucb.LSVIUCBAgent):
    """The library's agent, which notes when episodes begin."""

    def run_episode(self) -> float:
        """As it is."""
        self.times.append(time.process_time())
        return super().run_episode()

    def _run_lsvi(self, bonus_factor: float) -> np.ndarray:
        if bonus_factor == 0.0:  # the last plan, which is not part of any episode
            self.times.append(time.process_time())
        return super()._run_lsvi(bonus_factor)


def main(source: str, target: str) -> None:
    """Runs the agent on the worlds of one file and writes what happened to the other."""
    rlberry.logger.setLevel("ERROR")
    given = dict(np.load(source))
    if given["compiled"]:
        _compile_planner()
    runs = [
        _run(
            BernoulliMDP(rewards, transitions, given["start"]),
            given["features"],
            int(given["horizon"]),
            int(given["episodes"]),
            int(seed),
        )
        for transitions, rewards, seed in zip(
            given["transitions"], given["rewards"], given["seeds"], strict=True
        )
    ]
    seconds, returns, actions = zip(*runs, strict=True)
    np.savez(
        target, seconds=np.stack(seconds), returns=np.stack(returns), actions=np.stack(actions)
    )


def _run(
    world: BernoulliMDP, features: np.ndarray, horizon: int, episodes: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    agent = Clocked(
        world,
        horizon=horizon,
        feature_map_fn=lambda _: Table(features),
        gamma=1.0,
        seeder=seed,
    )
    agent.times = []
    agent.fit(episodes)
    times = np.diff(agent.times)
    weights = agent._run_lsvi(0.0)[:horizon]
    actions = np.einsum("sad,hd->hsa", features, weights).argmax(axis=2)
    return times, agent._rewards.copy(), actions


def _compile_planner() -> None:
    """The same function, compiled."""
    import numba

    plan = numba.njit(lsvi_ucb.run_lsvi)
    one = np.ones(1)
    plan(1, 1, 1.0, np.ones((1, 1)), one, 1.0, np.ones((1, 1)), 1, np.ones((1, 1, 1)), 1.0, 1)
    # The agent looks it up under this name.
    lsvi_ucb.run_lsvi = plan


if __name__ == "__main__":
    main(*sys.argv[1:])
