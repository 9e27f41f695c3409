"""A recommender that learns what readers enjoy, from logs, and publishes nothing about any of them.

A reader visits a magazine and is offered an article six times. Her state is the topic she read
last and how much patience she has left. The editors know their articles and have a hunch which of
them fit which state; from it they make features by hand. What becomes of readers who are absorbed
by an article, or restless over it, they do not know: that is learnt, under joint differential
privacy, from ordinary logs.

    python examples/recommender.py

The noise is real: there is no seed, and every run is different.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import tacit
from tacit import published
from tacit.linear import LinearSpec, LinearWorld

TOPICS = ("sport", "science", "gossip", "cooking")
PATIENCE = ("none left", "little", "some", "much", "all day")
OFFERS = 6  # of a visit
STATES = len(TOPICS) * len(PATIENCE)  # state = topic * 5 + patience
START = TOPICS.index("gossip") * len(PATIENCE) + 1  # the front page is gossip, and readers are busy

# What the editors know of an article: its topic, one that it touches, its length, its novelty.
ARTICLES = (
    ("The final, minute by minute", "sport", "gossip", "long", "familiar"),
    ("Last night's results", "sport", "sport", "short", "familiar"),
    ("How a goalkeeper sees the ball", "sport", "science", "long", "fresh"),
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

# The factors: absorbed by a topic, and restless over it. The features of an article in a state are
# weights of these eight, so they are known; what each factor leads to is not.
FACTORS = tuple(f"{mood} {topic}" for mood in ("absorbed by", "restless over") for topic in TOPICS)


def chance_to_absorb(topic: int, patience: int, article: int) -> float:
    """The editors' hunch, by the topic that was read last and the patience that is left."""
    _, main, _, length, novelty = ARTICLES[article]
    calm = patience / (len(PATIENCE) - 1)
    chance = 0.1 + 0.8 * calm if length == "long" else 0.45 + 0.3 * calm
    if main == TOPICS[topic]:
        chance += 0.1 if novelty == "fresh" else -0.2  # more of the same, or of the same again
    if main == "gossip":
        chance += 0.2  # goes down easily
    return float(np.clip(chance, 0.02, 0.98))


def hand_made_features() -> NDArray[np.float64]:
    """phi(state, article), (S, A, d): non-negative and adding up to 1."""
    features = np.zeros((STATES, len(ARTICLES), len(FACTORS)))
    for state in range(STATES):
        topic, patience = divmod(state, len(PATIENCE))
        for article, (_, main, side, _, _) in enumerate(ARTICLES):
            chance = chance_to_absorb(topic, patience, article)
            for name, share in ((main, 0.8), (side, 0.2)):
                at = TOPICS.index(name)
                features[state, article, at] += share * chance
                features[state, article, len(TOPICS) + at] += share * (1.0 - chance)
    return features


def readers() -> LinearWorld:
    """What readers are like. Nobody knows; it is here because somebody has to play them.

    Gossip absorbs and wears out. Science delights those who have patience, and cooking gives it.
    """
    # Chance to enjoy, and the patience that is left, of those absorbed and those restless.
    enjoy = {"sport": 0.5, "science": 0.95, "gossip": 0.55, "cooking": 0.35}
    after = {
        "sport": (0.1, 0.2, 0.4, 0.2, 0.1),
        "science": (0.0, 0.05, 0.15, 0.4, 0.4),
        "gossip": (0.4, 0.4, 0.1, 0.1, 0.0),
        "cooking": (0.0, 0.0, 0.1, 0.3, 0.6),
    }
    restless = (0.5, 0.35, 0.15, 0.0, 0.0)
    measures, rewards = [], []
    for calm in (True, False):
        for number, topic in enumerate(TOPICS):
            patience = np.array(after[topic] if calm else restless)
            where = np.full(len(TOPICS), 0.1)  # some wander off to another topic
            where[number] = 0.7
            measures.append(np.outer(where, patience).reshape(-1))
            rewards.append(enjoy[topic] if calm else 0.05)
    return LinearWorld(
        hand_made_features(), [measures], [rewards], OFFERS, start=START, name="readers"
    )


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


def log_of(
    policy: published.PublishedPolicy | tacit.Policy,
    world: LinearWorld,
    names: list[str],
    rng: np.random.Generator,
) -> dict[str, list[float | str]]:
    """The log of some readers, as a database would have it: a line per offer."""
    columns = ("user", "step", "state", "action", "reward", "next_state", "version")
    log: dict[str, list[float | str]] = {column: [] for column in columns}
    transitions, means = world.model.transitions[0], world.model.mean_rewards[0]
    for name in names:
        state = START
        for step in range(OFFERS):
            article = policy.act(step, state, rng)
            after = int(rng.choice(STATES, p=transitions[state, article]))
            enjoyed = float(rng.random() < means[state, article])
            line = (name, step, state, article, enjoyed, after, policy.version)
            for column, value in zip(columns, line, strict=True):
                log[column].append(value)
            state = after
    return log


def learn_from_logs(agent: tacit.LSVIUCB, world: LinearWorld, seed: int) -> list[float]:
    """Serves readers day by day until all are through; returns what they enjoyed per visit."""
    rng, enjoyed = np.random.default_rng(seed), []
    while agent.block_users > 0:
        today = min(250, agent.block_users)
        names = [f"reader {number}" for number in range(sum(map(len, enjoyed)), 0)]
        del names
        first = sum(len(day) for day in enjoyed)
        log = log_of(agent.policy, world, [f"reader {first + i}" for i in range(today)], rng)
        agent.learn(tacit.Episodes.from_frame(log, horizon=OFFERS, version="version"))
        enjoyed.append(np.reshape(log["reward"], (today, OFFERS)).sum(axis=1))
    return enjoyed
