"""A small app and people who use it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np

from tacit import published
from tacit.service.app_file import App, read_app

APP = """
[world]
states = ["new", "idle", "busy"]
actions = ["wait", "ask"]
horizon = 3

[agent]
name = "{agent}"
users = {users}
schedule = "fixed:size={size}"

[privacy]
epsilon = 1.0
delta = 1e-7
{privacy}

[serve]
rate = 1000000
{serve}
"""


def write_app(
    folder: Path,
    *,
    agent: str = "ucbvi",
    users: int = 100000,
    size: int = 20,
    privacy: str = "",
    serve: str = "",
) -> Path:
    path = folder / "app.toml"
    path.write_text(APP.format(agent=agent, users=users, size=size, privacy=privacy, serve=serve))
    return path


def make_app(folder: Path, **options: Any) -> App:
    return read_app(str(write_app(folder, **options)), logs=False)


def episode(policy: Any, ticket: str, seed: int = 0, **more: Any) -> dict[str, Any]:
    """One user's, who follows a policy that was read."""
    rng = np.random.default_rng(seed)
    names, state = ["new", "idle", "busy"], "new"
    states, actions, rewards = [state], [], []
    for step in range(3):
        actions.append(policy.act(step, state, np.random.default_rng(seed)))
        rewards.append(int(rng.integers(2)))
        state = str(rng.choice(names))
        states.append(state)
    body = {
        "user": uuid.uuid4().hex,
        "event": uuid.uuid4().hex,
        "version": policy.version,
        "ticket": ticket,
        "states": states,
        "actions": actions,
        "rewards": rewards,
    }
    return body | more


def read_policy(response: Any, folder: Path) -> Any:
    path = folder / "read.json"
    path.write_bytes(response.content)
    return published.load(path)
