"""rlberry-scool's UCBVI on the worlds of a file. Runs in ``.venv-peers``, without Tacit.

``python rlberry_ucbvi.py worlds.npz runs.npz`` reads

    transitions (n, S, A, S), rewards (n, S, A), means of Bernoulli rewards, start (S,), seeds (n,),
    horizon, episodes, and compiled (whether to compile its planner with numba)

and writes for each of the n runs

    seconds (n, episodes): the time of every episode, its steps and its replanning together
    actions (n, episodes, H, S): the policy that was followed in it

The agent is the library's own: stationary, undiscounted, its default bonus, planning by full
backward induction after every episode. Only the clock and the reading of policies are added, and
the policies are read while the clock stands still.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import rlberry
from rlberry.envs.finite_mdp import FiniteMDP
from rlberry_scool.agents.ucbvi import UCBVIAgent, ucbvi


class BernoulliMDP(FiniteMDP):
    """The library's finite world with rewards drawn from {0, 1}; its own are always the mean."""

    def __init__(self, rewards: np.ndarray, transitions: np.ndarray, start: np.ndarray) -> None:
        self._draws: list[float] = []
        sure = np.flatnonzero(start == 1.0)
        super().__init__(rewards, transitions, int(sure[0]) if len(sure) else start)
        self.reward_range = (0.0, 1.0)

    def reward_fn(self, state: int, action: int, next_state: int) -> float:
        """A draw. They are made in bulk, so that they add next to nothing to a step."""
        if not self._draws:
            self._draws = self.rng.random(10_000).tolist()
        return float(self._draws.pop() < self.R[state, action])

    def _check(self) -> None:
        """Nothing: who wrote the file checked the rows, and they may be off by more than 1e-15."""


def main(source: str, target: str) -> None:
    """Runs the agent on the worlds of one file and writes what happened to the other."""
    rlberry.logger.setLevel("ERROR")
    given = dict(np.load(source))
    horizon, episodes = int(given["horizon"]), int(given["episodes"])
    if given["compiled"]:
        _compile_planner()
    runs = [
        _run(BernoulliMDP(rewards, transitions, given["start"]), horizon, episodes, int(seed))
        for transitions, rewards, seed in zip(
            given["transitions"], given["rewards"], given["seeds"], strict=True
        )
    ]
    seconds, actions = zip(*runs, strict=True)
    np.savez(target, seconds=np.stack(seconds), actions=np.stack(actions))


def _run(world: FiniteMDP, horizon: int, episodes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    agent = UCBVIAgent(
        world,
        gamma=1.0,
        horizon=horizon,
        stage_dependent=False,
        real_time_dp=False,
        seeder=seed,
    )
    seconds = np.empty(episodes)
    actions = np.empty((episodes, *agent.Q.shape[:2]), dtype=np.int16)
    for episode in range(episodes):
        actions[episode] = agent.Q.argmax(axis=2)
        start = time.perf_counter()
        agent._run_episode()  # fit(n) is n of these, and one plan without bonus at the end
        seconds[episode] = time.perf_counter() - start
    return seconds, actions


def _compile_planner() -> None:
    """The same function, compiled; the sums are made in the same order."""
    import numba

    plan = numba.njit(ucbvi.backward_induction_reward_sd)
    plan(np.zeros((1, 1, 1)), np.zeros((1, 1)), np.zeros((1, 1, 1)), np.ones((1, 1, 1)), 1.0, 1.0)
    # The agent looks it up under this name.
    ucbvi.backward_induction_reward_sd = plan


if __name__ == "__main__":
    main(*sys.argv[1:])
