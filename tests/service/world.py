"""A small app and people who use it."""

import json
import uuid

import numpy as np

from tacit.service.app_file import read_app
from tests.service.people import ISSUER, public

APP = """
[world]
states = ["new", "idle", "busy"]
actions = ["wait", "ask"]
horizon = {horizon}

[agent]
name = "{agent}"
users = {users}
schedule = "fixed:size={size}"

[privacy]
epsilon = 1.0
delta = 1e-7
{privacy}

[files]
store = "{store}"
name = "{name}"

[serve]
window = {window}
rate = 1000000
{people}
{serve}
"""


USUAL = {"agent": "ucbvi", "users": 100000, "size": 8, "privacy": "", "serve": ""}
USUAL |= {"people": ISSUER, "store": "app.db", "name": "run", "horizon": 3, "window": 60}


def write_app(folder, file="app.toml", **options):
    path = folder / file
    path.write_text(APP.format(**USUAL | options))
    (folder / "people.json").write_text(json.dumps({"keys": [public()]}))
    return path


def make_app(folder, **options):
    return read_app(str(write_app(folder, **options)), logs=False)


def reads(client):
    """The policy, for another user of this device."""
    client._spent = True
    return client.policy()


def come(client, users, **more):
    """So many users, each of whom reads the policy, and sends an episode; what they were told."""
    told = []
    for seed in range(users):
        policy = reads(client)
        drawn = getattr(policy, "component", None)  # of a mixed policy
        said = more if drawn is None else more | {"component": drawn}
        body = episode(policy, client._ticket, seed, **said)
        told.append(client.post("/v1/episodes", body)["status"])
    return told


def episode(policy, ticket, seed=0, **more):
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
        "ticket": ticket,
        "states": states,
        "actions": actions,
        "rewards": rewards,
    }
    return body | more
