"""A small trial for tests: contexts, people who differ and leave, rewards of 0 and 1."""

import numpy as np

from tacit.data.episodes import VectorEpisodes
from tacit.trial import TrialSpec


class Contexts:
    """A world whose effect changes its sign from context to context."""

    exchangeable_actions = False

    def __init__(
        self, horizon=140, effect=0.2, contexts=8, *, rare=0.5, drop=0.3, people=0.5, **spec
    ):
        self.spec = TrialSpec(horizon, contexts, **spec)
        self.effect, self.rare, self.drop, self.people = effect, rare, drop, people
        self.signs = np.where(np.arange(contexts) % 2, 1.0, -1.0)
        self.name = f"contexts:horizon={horizon},effect={effect}"
        self.optimal_value, self.baseline_value, self.reference_value = 1.0, 0.0, 1.0

    def value(self, policy):
        """Mean gain over chances of a half, over that of the best action."""
        chances = policy.chances(np.eye(len(self.signs)))
        return float(((2.0 * chances - 1.0) * self.signs).mean())

    def simulate(self, policy, users, rng, form="episodes"):
        """New people, whose whole history is by one policy."""
        return Cohort(self, users, rng).advance(policy, self.spec.horizon)

    def cohort(self, rng):
        return Looks(self, rng)


class Looks:
    """The same people, moved on from look to look."""

    def __init__(self, world, rng):
        self.world, self.rng, self.cohort, self.look = world, rng, None, 0

    def simulate(self, policy, users, rng, form="episodes"):
        if self.cohort is None:
            self.cohort = Cohort(self.world, users, self.rng)
        self.look += 1
        return self.cohort.advance(policy, self.world.spec.edges[self.look - 1])

    @property
    def served(self):
        return self.cohort.gain / max(self.cohort.best, 1e-12)


class Cohort:
    """People, and their histories so far."""

    def __init__(self, world, people, rng):
        self.world, self.rng, H, S = world, rng, world.spec.horizon, len(world.signs)
        sd = world.people * world.effect / np.sqrt(2.0)
        self.effects = world.effect * world.signs + sd * (
            rng.standard_normal((people, 1)) + rng.standard_normal((people, S))
        )
        self.base = world.rare + 0.2 * world.rare * rng.standard_normal(people)
        self.leave = np.where(rng.random(people) < world.drop, rng.random(people) * H, H)
        self.context = rng.integers(S, size=people)
        self.slow = 0.2 * world.rare * rng.standard_normal(people)
        self.states = np.zeros((people, H + 1, S))
        self.actions = np.zeros((people, H), dtype=np.int64)
        self.rewards, self.chances = np.zeros((people, H)), np.full((people, H), np.nan)
        self.at, self.history, self.gain, self.best = 0, None, 0.0, 0.0
        self.ids = [f"person {i}" for i in range(people)]

    def advance(self, policy, until):
        """Everybody's decisions under a policy, up to a look."""
        rng, world, n = self.rng, self.world, len(self.base)
        S, rows = len(world.signs), np.arange(n)
        if self.history is None:
            self.history = policy.history(n)
        for h in range(self.at, until):
            moved = rng.random(n) < 0.5
            self.context = np.where(moved, self.context, rng.integers(S, size=n))
            self.slow = 0.7 * self.slow + 0.71 * 0.2 * world.rare * rng.standard_normal(n)
            f, live = np.eye(S)[self.context], self.leave > h
            p = policy.chances(f, self.history)
            a = (rng.random(n) < p).astype(np.int64)
            own = self.effects[rows, self.context]
            low, high = (0.02, 0.98) if world.rare == 0.5 else (0.0, 1.0)
            q = np.clip(self.base + self.slow + own * (a - 0.5), low, high)
            r = (rng.random(n) < q).astype(float)
            self.history.add(f, a, p, np.where(live, r, np.nan))
            self.states[:, h], self.actions[:, h] = f, a
            self.rewards[:, h] = r
            self.chances[:, h] = np.where(live, np.where(a == 1, p, 1.0 - p), np.nan)
            self.gain += float((live * (2.0 * p - 1.0) * own).sum())
            self.best += float((live * own * world.signs[self.context]).sum())
        self.at = until
        return VectorEpisodes(
            self.states.copy(),
            self.actions.copy(),
            self.rewards.copy(),
            lengths=np.minimum(np.ceil(self.leave), until),
            propensities=self.chances.copy(),
            user_ids=self.ids,
        )


def play(agent, world, seed=0):
    """Score of the greedy policy at the end, and of what people got, for one cohort."""
    cohort = world.cohort(np.random.default_rng([seed, 77]))
    while agent.block_users:
        agent.learn(cohort.simulate(agent.policy, agent.block_users, None))
    return world.value(agent.greedy_policy), cohort.served
