"""rlberry-scool's UCBVI on the world of a file. Runs in ``.venv-peers``, without Tacit.

``python rlberry_ucbvi.py world.npz run.npz`` reads

    transitions (S, A, S), rewards (S, A) (means of Bernoulli rewards), start (S,),
    horizon, episodes, seed, and compiled (whether to compile its planner with numba)

and writes

    seconds (episodes,): the time of every episode, its users' steps and its replanning together
    actions (episodes, H, S): the policy that was followed in it

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
        """A draw. They are made in bulk, so that they add next to nothing to the step."""
        if not self._draws:
            self._draws = self.rng.random(10_000).tolist()
        return float(self._draws.pop() < self.R[state, action])

    def _check(self) -> None:
        """Nothing: rows were checked by who wrote them, and 1e-15 is less than their rounding."""


def main(source: str, target: str) -> None:
    """Runs the agent on the world of one file and writes what happened to the other."""
    rlberry.logger.setLevel("ERROR")
    given = np.load(source)
    if given["compiled"]:
        import numba

        # Where the agent looks its planner up.
        ucbvi.backward_induction_reward_sd = numba.njit(ucbvi.backward_induction_reward_sd)
    world = BernoulliMDP(given["rewards"], given["transitions"], given["start"])
    agent = UCBVIAgent(
        world,
        gamma=1.0,
        horizon=int(given["horizon"]),
        stage_dependent=False,
        real_time_dp=False,
        seeder=int(given["seed"]),
    )
    if given["compiled"]:
        agent._run_episode()  # compiles
        agent.reset()
    episodes = int(given["episodes"])
    seconds = np.empty(episodes)
    actions = np.empty((episodes, *agent.Q.shape[:2]), dtype=np.int16)
    for episode in range(episodes):
        actions[episode] = agent.Q.argmax(axis=2)
        start = time.perf_counter()
        agent._run_episode()  # fit(n) is n of these, and a greedy plan at the end
        seconds[episode] = time.perf_counter() - start
    np.savez(target, seconds=seconds, actions=actions)


if __name__ == "__main__":
    main(*sys.argv[1:])
