"""A small app that learns from its users, is killed in the middle, and goes on.

The app builds a habit. Each day of a working week it stays quiet or sends a reminder, by a policy
that is published in a file. Users come one by one; their phones load the policy, act on it with
the user's own state, and send the week to the app, which holds a private agent.

    python examples/app.py

starts the app, kills it (as by ``kill -9``) while users are being served, starts it again, and
shows what was kept. The noise is real: there is no seed, and every run is different.
"""

# ruff: noqa: T201, S603

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import tacit
from tacit import published
from tacit.tabular.spec import FiniteSpec

DAYS, STATES, ACTIONS = 5, 4, 2
SPEC = FiniteSpec(states=STATES, actions=ACTIONS, horizon=DAYS, stationary=True)
PRIVACY = tacit.JointDP(epsilon=1.0, delta=1e-6)

# What the people are like; the app does not know. The chance that a habit grows, by action (quiet,
# reminder) and habit: reminders help those with little habit and annoy those who have it.
GROWS = np.array([[0.05, 0.10, 0.30, 0.90], [0.70, 0.70, 0.60, 0.20]])
ACTIVE = np.array([0.0, 0.3, 0.6, 0.9])


def week_of(user: int, policy: published.PublishedPolicy) -> tacit.Episodes:
    """One user's week, as her phone records it; she comes with the randomness of her own."""
    rng = np.random.default_rng(user)
    states, actions, rewards = [0], [], []
    for day in range(DAYS):
        actions.append(policy.act(day, states[-1], rng))
        change = 1 if rng.random() < GROWS[actions[-1], states[-1]] else -1
        states.append(min(max(states[-1] + change, 0), STATES - 1))
        rewards.append(float(rng.random() < ACTIVE[states[-1]]))
    return tacit.Episodes([states], [actions], [rewards], [policy.version], [f"user {user}"])


def serve(folder: Path, users: int, first: int, die_at: int | None) -> None:
    """Serves users until all are through, or until the process dies."""
    # A new agent at the first start, else the one that is in the store.
    agent = tacit.UCBVI(SPEC, users, PRIVACY, store=folder / "app.db")
    waiting = agent.taken - agent.served
    print(
        f"  app: opens with {agent.served:,} users learnt from, {agent.releases} releases; "
        f"{waiting} wait"
    )
    billboard = folder / "policy.npz"
    agent.publish(billboard)
    policy, user = published.load(billboard), first
    while agent.block_users > 0:
        if user == die_at:
            print(f"  app: {agent.served:,} users learnt from, the next ones are waiting")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        agent.learn(week_of(user, policy))
        user += 1
        if agent.policy.version != policy.version:
            # Not the raw mean, which nobody may see: what the release says of it, with its noise.
            seen = tacit.monitor(agent)
            print(
                f"  app: policy {agent.policy.version} after {agent.served:,} users; active days "
                f"per week under policy {policy.version}: {'at least ' * seen.partial[-1]}"
                f"{seen.returns[-1]:.2f} "
                f"+- {2 * seen.return_errors[-1]:.2f}"
            )
            agent.publish(billboard)
            policy = published.load(billboard)
    agent.publish(folder / "final.npz", greedy=True)
    print(f"  app: all users are through. {agent.guarantee}")


def main() -> int:
    """Starts the app twice; the first time it is killed."""
    parser = argparse.ArgumentParser(description="A private app that is killed and goes on.")
    parser.add_argument("--folder", type=Path, default=None, help="for its files; a new one if not")
    parser.add_argument("--users", type=int, default=8_000, help="how many it is declared for")
    parser.add_argument("--killed-at", type=int, default=3_000, help="at which user it is killed")
    parser.add_argument("--first", type=int, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.first is not None:  # this is the app itself
        killed_at = given.killed_at if given.killed_at >= 0 else None
        serve(given.folder, given.users, given.first, killed_at)
        return 0

    folder = given.folder or Path(tempfile.mkdtemp())
    command = [sys.executable, __file__, f"--folder={folder}", f"--users={given.users}"]
    print("The app starts.")
    first = subprocess.run([*command, "--first=0", f"--killed-at={given.killed_at}"], check=False)
    if first.returncode != -signal.SIGKILL:
        print("The app ended before it was killed: choose --killed-at below --users.")
        return 1
    print("The app was killed, and starts again.")
    # Nobody is lost: those who waited for the rest of their block wait in the store.
    subprocess.run([*command, f"--first={given.killed_at}", "--killed-at=-1"], check=True)
    policy = published.load(folder / "final.npz")
    print(f"The public policy, in {folder / 'final.npz'}; a row per day, a column per habit:")
    for day in range(DAYS):
        row = [policy.act(day, habit) for habit in range(STATES)]
        print("  " + "  ".join(("quiet ", "remind")[action] for action in row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
