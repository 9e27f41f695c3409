"""A world and an agent whose numbers can be computed by hand."""

import math

import tacit
from tacit import Guarantee, JointDP, NonPrivate, Relation
from tacit.tabular import TabularWorld
from tacit.tabular.policy import Policy


def two_coins(best=1.0):
    """One toss per user. The second coin always pays; tossing either pays half."""
    world = TabularWorld([[[1.0], [1.0]]], [[0.0, best]], horizon=1, name=f"two_coins:best={best}")
    world.exchangeable_actions = False  # so that the agent below knows which coin is which
    return world


def unknown_optimum():
    class Unknown(TabularWorld):
        optimal_value = math.nan

    world = Unknown([[[1.0], [1.0]]], [[0.0, 1.0]], horizon=1, name="unknown")
    world.exchangeable_actions = False
    return world


class Scripted:
    """Blocks of 100 users. Tosses either coin until (seed + 1) blocks are through, then the best.

    Its greedy policy is good one block earlier, and with ``never`` the seeds from there on never
    learn.
    """

    why = "as scripted"

    def __init__(
        self, spec, users, privacy, seed=0, noise_seed=None, never=1000, fail=False, refuse=False
    ):
        self.spec, self.users, self.privacy, self.seed = spec, users, privacy, seed
        self.never, self.fail, self.refuse = never, fail, refuse
        self.simulated = noise_seed is not None
        self.data_format = "counts"
        self.releases = 0

    def _policy(self, good):
        return Policy.stochastic([[[0.0, 1.0] if good and self.seed < self.never else [0.5, 0.5]]])

    @property
    def policy(self):
        return self._policy(self.releases > self.seed)

    @property
    def greedy_policy(self):
        return self._policy(self.releases >= self.seed)

    @property
    def block_users(self):
        return min(100, self.users - 100 * self.releases)

    @property
    def guarantee(self):
        if isinstance(self.privacy, NonPrivate):
            return None
        return Guarantee(
            model="joint" if isinstance(self.privacy, JointDP) else "local",
            epsilon=self.privacy.epsilon,
            delta=self.privacy.delta,
            mu=None,
            relation=Relation.REPLACE_ONE,
            releases=10,
            mechanism="none at all",
            simulation_only=self.simulated,
        )

    def learn(self, data):
        if self.fail and self.seed == 1:
            raise ZeroDivisionError("made to\nfail")
        if self.refuse and self.seed == 1:
            raise tacit.HorizonExceeded("made to refuse")
        self.releases += 1
