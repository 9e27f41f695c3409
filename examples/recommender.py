"""A recommender that learns what readers enjoy, from logs, and publishes nothing about any of them.

A reader visits a magazine and is offered six articles, one after the other. Her state is the topic
she read last and how much patience she has left. The editors know their articles and have a hunch
which of them absorb whom; from it they make features by hand. What becomes of readers who are
absorbed by a topic, or restless over it, they do not know. That is learnt from ordinary logs, under
joint differential privacy.

    python examples/recommender.py

The noise is real: there is no seed for it, and every run is different.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tacit
from tacit import published
from tacit.linear import LinearSpec, LinearWorld

OFFERS = 6
TOPICS = ("sport", "science", "gossip", "cooking")
PATIENCE = ("no", "little", "some", "much", "endless")
STATES = len(TOPICS) * len(PATIENCE)

# What the editors know of an article: its topic, another that it touches, its length, its novelty.
ARTICLES = (
    ("The final, minute by minute", "sport", "gossip", "long", "familiar"),
    ("Last night's results", "sport", "sport", "short", "familiar"),
    ("What a goalkeeper sees", "sport", "science", "long", "fresh"),
    ("Why octopuses dream", "science", "science", "long", "fresh"),
    ("A prime number in the news", "science", "science", "short", "fresh"),
    ("Dark matter, again", "science", "science", "long", "familiar"),
    ("Who wore what", "gossip", "gossip", "short", "familiar"),
    ("The duke, the chef and the dog", "gossip", "cooking", "short", "fresh"),
    ("A life in scandals", "gossip", "gossip", "long", "familiar"),
    ("Soup in ten minutes", "cooking", "cooking", "short", "familiar"),
    ("The chemistry of bread", "cooking", "science", "long", "fresh"),
    ("A salad from nowhere", "cooking", "cooking", "short", "fresh"),
)
EASE = {"sport": 0.0, "science": -0.05, "gossip": 0.4, "cooking": 0.4}


def state_of(topic: str, patience: str) -> int:
    """The number of a state."""
    return TOPICS.index(topic) * len(PATIENCE) + PATIENCE.index(patience)


# The front page is gossip, and readers are busy.
START = state_of("gossip", "little")


def chance_to_absorb(last: str, patience: int, article: int) -> float:
    """The editors' hunch, by the topic that was read last and by the patience that is left."""
    _, topic, _, length, novelty = ARTICLES[article]
    calm = patience / (len(PATIENCE) - 1)
    chance = 0.05 + 0.85 * calm if length == "long" else 0.2 + 0.2 * calm
    if topic == last:
        chance += 0.1 if novelty == "fresh" else -0.2
    return min(max(chance + EASE[topic], 0.02), 0.98)


def hand_made_features() -> NDArray[np.float64]:
    """phi, (states, articles, 8): weights of eight factors, which are never negative and add to 1.

    The factors are to be absorbed by each of the topics, and to be restless over each of them.
    """
    features = np.zeros((STATES, len(ARTICLES), 2 * len(TOPICS)))
    for state in range(STATES):
        last, patience = divmod(state, len(PATIENCE))
        for article, (_, topic, side, _, _) in enumerate(ARTICLES):
            chance = chance_to_absorb(TOPICS[last], patience, article)
            for name, share in ((topic, 0.8), (side, 0.2)):
                at = TOPICS.index(name)
                features[state, article, at] += share * chance
                features[state, article, len(TOPICS) + at] += share * (1.0 - chance)
    return features


def what_is_known() -> LinearSpec:
    """All that the agent is told: sizes, features, and where a visit begins."""
    return LinearSpec(
        states=STATES,
        actions=len(ARTICLES),
        horizon=OFFERS,
        start=np.eye(STATES)[START],
        features=hand_made_features(),
        stationary_transitions=True,
        stationary_rewards=True,
    )


def the_readers() -> LinearWorld:
    """What readers are like. Nobody knows; it is here because somebody has to play them.

    Gossip is easy and wears them out. Science delights those with patience, and cooking gives it.
    """
    enjoy = {"sport": 0.5, "science": 0.95, "gossip": 0.5, "cooking": 0.2}
    patience_after = {
        "sport": (0.1, 0.3, 0.4, 0.2, 0.0),
        "science": (0.0, 0.0, 0.1, 0.4, 0.5),
        "gossip": (0.6, 0.4, 0.0, 0.0, 0.0),
        "cooking": (0.0, 0.0, 0.0, 0.3, 0.7),
    }
    restless = (0.6, 0.3, 0.1, 0.0, 0.0)
    measures, rewards = [], []
    for absorbed in (True, False):
        for number, topic in enumerate(TOPICS):
            topics = np.full(len(TOPICS), 0.1)  # some wander off to another topic
            topics[number] = 0.7
            left = patience_after[topic] if absorbed else restless
            measures.append(np.outer(topics, left).reshape(-1))
            rewards.append(enjoy[topic] if absorbed else 0.05)
    return LinearWorld(
        hand_made_features(), [measures], [rewards], OFFERS, start=START, name="readers"
    )


def visits(
    policy: tacit.Policy | published.PublishedPolicy,
    world: LinearWorld,
    names: list[str],
    rng: np.random.Generator,
) -> dict[str, NDArray[Any]]:
    """The log of some readers as a database has it: columns, with a line per offer."""
    likely, pays = world.model.transitions[0].cumsum(axis=-1), world.model.mean_rewards[0]
    state = np.full(len(names), START)
    lines = []
    for step in range(OFFERS):
        assert policy.actions is not None  # noqa: S101
        article = policy.actions[step, state]
        enjoyed = rng.random(len(names)) < pays[state, article]
        after = (likely[state, article] < rng.random((len(names), 1))).sum(axis=1)
        after = np.minimum(after, STATES - 1)
        whole = (np.full(len(names), step), np.full(len(names), policy.version))
        lines.append((np.array(names), whole[0], state, article, enjoyed, after, whole[1]))
        state = after
    columns = ("user", "step", "state", "action", "reward", "next_state", "version")
    return {
        name: np.concatenate(parts)
        for name, parts in zip(columns, zip(*lines, strict=True), strict=True)
    }


def learn_from_logs(agent: tacit.Agent, world: LinearWorld, rng: np.random.Generator) -> None:
    """Serves readers, 250 a day, until all are through; the agent learns from every day's log.

    What it prints is raw and for the story only: with real readers it would be a leak.
    """
    enjoyed: list[float] = []
    tell = 500
    while agent.block_users > 0:
        first = 250 * len(enjoyed)
        names = [f"reader {first + i}" for i in range(min(250, agent.block_users))]
        log = visits(agent.policy, world, names, rng)
        agent.learn(tacit.Episodes.from_frame(log, horizon=OFFERS, version="version"))
        enjoyed.append(OFFERS * float(log["reward"].mean()))
        if agent.served >= tell or agent.block_users == 0:
            print(
                f"  {agent.served:6,} readers, {agent.policy.version:2} policies published; "
                f"lately {np.mean(enjoyed[-4:]):.2f} articles enjoyed per visit"
            )
            tell = 2 * agent.served


def one_visit(policy: published.PublishedPolicy, world: LinearWorld, seed: int) -> None:
    """What one reader's own device does with the public policy and her private state."""
    rng = np.random.default_rng(seed)
    state = START
    for step in range(OFFERS):
        article = policy.act(step, state, rng)
        last, patience = divmod(state, len(PATIENCE))
        mood = f"{PATIENCE[patience]} patience after {TOPICS[last]}"
        enjoyed = rng.random() < world.model.mean_rewards[0, state, article]
        print(f"  {mood:30} {ARTICLES[article][0]:32}{'enjoyed' if enjoyed else '-'}")
        state = int(rng.choice(STATES, p=world.model.transitions[0, state, article]))


def main() -> int:
    """Tells the story."""
    parser = argparse.ArgumentParser(description="A private recommender with hand-made features.")
    parser.add_argument("--folder", type=Path, default=None, help="for its file; a new one if not")
    parser.add_argument("--users", type=int, default=30_000, help="how many readers come")
    parser.add_argument("--epsilon", type=float, default=1.0, help="their budget")
    parser.add_argument("--seed", type=int, default=0, help="of the readers; not of the noise")
    given = parser.parse_args()
    world, spec = the_readers(), what_is_known()
    print(
        f"A reader has {spec.states} states, there are {spec.actions} articles, and "
        f"{spec.dimension} features tell what both have in common."
    )
    agent = tacit.LSVIUCB(spec, given.users, tacit.JointDP(epsilon=given.epsilon, delta=1e-6))
    learn_from_logs(agent, world, np.random.default_rng(given.seed))
    print(f"\nWhat was asked of readers: {agent.why}.")
    print(textwrap.fill(f"What they are promised: {agent.guarantee}", 100))

    twin = tacit.LSVIUCB(spec, given.users, tacit.NonPrivate())
    tacit.run(twin, world, given.seed, progress=False)
    at_once = np.tile(world.model.mean_rewards[0].argmax(axis=1), (OFFERS, 1))
    print("\nArticles enjoyed per visit, exactly, which only a simulation can know:")
    for name, value in (
        ("offers at random", world.baseline_value),
        ("what is best at once", world.value(tacit.Policy.deterministic(at_once, len(ARTICLES)))),
        (f"learnt, epsilon {given.epsilon:g}", world.value(agent.greedy_policy)),
        ("learnt, not private", world.value(twin.greedy_policy)),
        ("best in the long run", world.optimal_value),
    ):
        print(f"  {name:24}{value:5.2f}")

    path = (given.folder or Path(tempfile.mkdtemp())) / "policy.npz"
    agent.publish(path, greedy=True, force=True)  # by force: a seed makes it a simulation
    print(f"\nThe public policy is in {path}. One reader's visit with it:")
    one_visit(published.load(path), world, given.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
