"""Simulated users, played against the running service over HTTP as devices would be.

They take places of declared users, and what they teach is in the policy: a sandbox belongs to a
service that serves nobody else, and is off unless ``[serve] sandbox = true``.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.service.client import Client
from tacit.service.tokens import new_token, revoke_token
from tacit.store.store import Store

MOST = 5000
"""Users of one play."""


class People:
    """Simulated users of a finite world that is drawn from a seed."""

    def __init__(self, spec: Any, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._spec = spec
        shape = (spec.states, spec.actions)
        self._next = rng.dirichlet(np.full(spec.states, 0.5), shape)
        self._pays = rng.random(shape)
        self._values = min(spec.reward_values), max(spec.reward_values)

    def episode(self, policy: Any, rng: np.random.Generator) -> dict[str, Any]:
        """One user's, who follows a published policy; of a mixed one the component it has."""
        spec = self._spec
        state, states, actions, rewards = 0, [0], [], []
        for step in range(spec.horizon):
            action = int(policy.act(step, state, rng))
            rewards.append(float(self._values[int(rng.random() < self._pays[state, action])]))
            state = int(rng.choice(spec.states, p=self._next[state, action]))
            actions.append(action)
            states.append(state)
        return {"states": states, "actions": actions, "rewards": rewards}


class Sandbox:
    """One play at a time; what came of it is public, as receipts are."""

    def __init__(self, store: Store, spec: Any, watch: Callable[[], None]) -> None:
        self._store, self._spec, self._watch = store, spec, watch
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.told: dict[str, int] = {}
        self.wanted = 0

    @property
    def playing(self) -> bool:
        """Whether one is going on."""
        return self._thread is not None and self._thread.is_alive()

    def play(self, address: str, users: int, seed: int) -> None:
        """Begins one, of so many users, against the service at an address."""
        if not 1 <= users <= MOST:
            raise InvalidArgument(f"users must be from 1 to {MOST}, got {users}")
        with self._lock:
            if self.playing:
                raise InvalidArgument("a play is going on")
            self.told, self.wanted = {}, users
            self._thread = threading.Thread(
                target=self._run, args=(address, users, seed), name="tacit-sandbox", daemon=True
            )
            self._thread.start()

    def _run(self, address: str, users: int, seed: int) -> None:
        token = new_token(self._store, "device")
        self._watch()
        client, people = Client(address, token), People(self._spec, seed)
        rng = np.random.default_rng(seed)
        try:
            for _ in range(users):
                made = people.episode(client.policy(), rng)
                status = client.send(f"sandbox-{secrets.token_hex(8)}", **made)["status"]
                self.told[status] = self.told.get(status, 0) + 1
                if status in ("ended", "stopped"):
                    break
        except TacitError as error:
            self.told[type(error).__name__] = 1
        finally:
            client.close()
            revoke_token(self._store, token.split("-", 3)[2])
