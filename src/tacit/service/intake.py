"""Who comes in: rows of the store, on disk before their devices are answered.

Devices that come at the same time share one transaction, so a flush of the disk serves all of them.
What an episode holds decides nothing here: it is packed into as many bytes as any other, and what
is no state, action or reward is packed as something that is visibly none.
"""

from __future__ import annotations

import itertools
import math
import queue
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tacit.core.late import LateStep, take
from tacit.privacy.reading import INVALID
from tacit.privacy.statistic import Block
from tacit.service.facts import trouble
from tacit.store.store import StoreGone

if TYPE_CHECKING:
    from tacit.core.agent import Agent
    from tacit.store.runs import Answer

_ELSEWHERE = ("unknown", "undecided")
_MOST = 512
"""Devices that share a transaction, at most."""
_GATHER = 0.005  # seconds that they wait for one another, where several came at once before


def form_of(agent: Agent) -> Form:
    """How an agent's users are packed."""
    spec, plan = agent.spec, agent.plan
    if hasattr(spec, "looks"):
        return Form(spec.horizon, (0, None), (spec.actions, None), features=spec.dimension)
    states, actions = (spec.states, spec.state_labels), (spec.actions, spec.action_labels)
    local = agent.privacy.local
    mixed = len(getattr(plan.policy, "components", ())) > 1
    drawn = not local and mixed and agent.algorithm.on_policy(plan)
    return Form(spec.horizon, states, actions, local, drawn)


class Form:
    """How the users of an app are packed: all of them into equally many bytes.

    Args:
        horizon: steps of an episode.
        states: how many there are, and the names of them.
        actions: the same of actions.
        local: whether reports come, not episodes.
        drawn: whether an episode must say which component of a mixed policy it followed.
        features: of a trial how many numbers a state is; then propensities come, too.
    """

    def __init__(
        self,
        horizon: int,
        states: tuple[int, Sequence[str] | None],
        actions: tuple[int, Sequence[str] | None],
        local: bool = False,
        drawn: bool = False,
        features: int = 0,
    ) -> None:
        self.horizon, self.local, self._drawn, self.features = horizon, local, drawn, features
        self.codes = [_codes(*states), _codes(*actions)]
        # Codes of states, actions and the component; rewards, and of trials chances and features.
        self._coded = horizon + 1 + (0 if features else horizon + 1)
        self._numbers = horizon + (horizon + (horizon + 1) * features if features else 0)
        self._struct = struct.Struct(f"<{self._coded}i{self._numbers}d")

    def fits(self, body: Mapping[str, Any], size: int) -> str:
        """Mistake in the shape of an episode or report, in words; empty if there is none.

        Lengths and types are public.
        """
        lengths = {"states": self.horizon + 1, "actions": self.horizon, "rewards": self.horizon}
        lengths |= {"propensities": self.horizon} if self.features else {}
        for name, length in ({"report": size} if self.local else lengths).items():
            found = body.get(name)
            if not isinstance(found, list) or len(found) != length:
                return f"{name} must be a list of {length}"
        rows = body["states"] if self.features else ()
        if not all(isinstance(row, list) and len(row) == self.features for row in rows):
            return f"states must be lists of {self.features} numbers"
        return self.undrawn(body)

    def undrawn(self, body: Mapping[str, Any]) -> str:
        """Mistake, if the component must be there and is not."""
        if self._drawn and type(body.get("component")) is not int:
            return "component must be a whole number: policies are mixed, and one was drawn"
        return ""

    def component(self, body: Mapping[str, Any]) -> int:
        """Which policy of a mixed one was drawn."""
        drawn = body.get("component")
        return drawn if type(drawn) is int and 0 <= drawn < 2**31 else INVALID

    def pack(self, body: Mapping[str, Any]) -> bytes:
        """One user's data. Values never raise."""
        if self.local:
            return struct.pack(f"<{len(body['report'])}d", *map(number, body["report"]))
        states, actions = self.codes
        more = itertools.chain(body["propensities"], *body["states"]) if self.features else ()
        return self._struct.pack(
            *(code(states, value) for value in (() if self.features else body["states"])),
            *(code(actions, value) for value in body["actions"]),
            self.component(body),
            *map(number, (*body["rewards"], *more)),
        )

    def apart(self, body: Mapping[str, Any], kind: str) -> str:
        """Mistake in the public form of a decision or an outcome; empty if there is none."""
        if self.features:
            return "a trial takes whole histories: POST /v1/episodes"
        needed = ("state", "action") if kind == "decision" else ("reward",)
        if missing := [name for name in needed if name not in body]:
            return f"{missing[0]} is missing"
        step = body.get("step")
        if type(step) is not int or not 0 <= step < self.horizon:
            return f"step must be a whole number from 0 to {self.horizon - 1}"
        said = body.get("ticket", "").partition(".")[0]
        if kind == "decision" and str(body.get("version", said)) != said:
            return "version must be that of the ticket, or be left out"
        return self.undrawn(body) if kind == "decision" else ""

    def late(self, body: Mapping[str, Any], ticket: str | None) -> LateStep:
        """A request as the agent takes it; with a ticket a decision. Values never raise."""
        states, actions = self.codes
        after = code(states, body.get("next_state"))
        values: dict[str, Any] = {"reward": number(body.get("reward")), "next_state": after}
        if ticket is not None:
            values = {"state": code(states, body["state"]), "action": code(actions, body["action"])}
            values["probability"] = number(body.get("probability"))
            values["component"] = self.component(body)
        return LateStep(body["user"], body["event"], values | {"step": body["step"]}, ticket)

    def block(self, rows: Sequence[bytes]) -> Block:
        """Users, packed alike, as the columns of a block."""
        if self.local:
            table = np.frombuffer(b"".join(rows), dtype="<f8").reshape(len(rows), -1)
            return Block(len(rows), {"reports": table})
        h = self.horizon
        kind = np.dtype([("codes", "<i4", self._coded), ("numbers", "<f8", self._numbers)])
        held = np.frombuffer(b"".join(rows), dtype=kind)
        codes, numbers = held["codes"].astype(np.int64), held["numbers"].copy()
        columns = {"actions": codes[:, -1 - h : -1], "rewards": numbers[:, :h]}
        if self.features:
            columns["propensities"] = numbers[:, h : 2 * h]
            columns["states"] = numbers[:, 2 * h :].reshape(len(rows), h + 1, self.features)
        else:
            columns["states"] = codes[:, : h + 1]
        return Block(len(rows), columns | ({"components": codes[:, -1]} if self._drawn else {}))


def _codes(count: int, names: Sequence[str] | None) -> dict[Any, int]:
    numbered: dict[Any, int] = {number: number for number in range(count)}
    return numbered | {name: number for number, name in enumerate(names or ())}


def code(codes: Mapping[Any, int], value: Any) -> int:
    """Number of a state or an action."""
    # 1.0 and True are equal to 1, and are no states.
    return codes.get(value, INVALID) if type(value) in (int, str) else INVALID


def number(value: Any) -> float:
    """A value as a float; NaN of what is none."""
    if type(value) not in (int, float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


@dataclass(frozen=True)
class Arrival:
    """A device with its episode."""

    user: str
    event: str
    ticket: str
    body: bytes


Coming: TypeAlias = Arrival | LateStep
Told = Callable[["Answer | None"], None]


class Intake:
    """A thread that takes devices in, as many in a transaction as came by then."""

    def __init__(self, agents: Sequence[Agent], form: Form) -> None:
        self._agents, self._form = agents, form  # the newest run first
        self._failed = -math.inf, ""
        self._queue: queue.Queue[tuple[Coming, Told] | None] = queue.Queue(maxsize=8 * _MOST)
        self._thread = threading.Thread(target=self._run, name="tacit-intake", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """The last problem of intake, a minute ago at most, in public words."""
        at, words = self._failed
        return words if time.monotonic() - at < 60.0 else ""

    def put(self, arrival: Coming, told: Told) -> bool:
        """Queues a device; ``told`` is called with its answer, or ``None`` if that is not known.

        Whether there was room: a service that is behind says so at once.
        """
        try:
            self._queue.put_nowait((arrival, told))
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Answers those who are here, and ends."""
        self._queue.put(None)
        self._thread.join(timeout=30.0)

    def _run(self) -> None:
        going, batch = True, list[Any]()
        while going:
            several, batch = len(batch) > 1, [self._queue.get()]
            if several:  # others are on their way: one transaction for more of them
                time.sleep(_GATHER)
            while len(batch) < _MOST and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            going = None not in batch
            alike: dict[int, list[tuple[Coming, Told]]] = {}
            for item in filter(None, batch):  # reports of one version; decisions and outcomes
                size = len(item[0].body) if isinstance(item[0], Arrival) else -1
                alike.setdefault(size, []).append(item)
            for items in alike.values():
                self._take(items)

    def _take(self, batch: list[tuple[Coming, Told]]) -> None:
        came = [one for one, _ in batch if isinstance(one, Arrival)]
        late = [one for one, _ in batch if isinstance(one, LateStep)]
        answers: Sequence[Answer | None] = [None] * len(batch)
        try:
            given: Any = [[getattr(a, name) for a in came] for name in ("user", "event", "ticket")]
            block = self._form.block([a.body for a in came]) if came else None
            for intake in (agent.intake for agent in [*self._agents]):
                said = take(intake, late) if block is None else intake.receive(block, *given)
                # Tickets of a run before this one are known there.
                both = zip(answers, said, strict=True)
                answers = [a if a and a.status not in _ELSEWHERE else b for a, b in both]
                if not any(a and a.status in _ELSEWHERE for a in answers):
                    break
            self._failed = -math.inf, ""
        except Exception as error:
            # Perhaps they are in, perhaps not: whoever sends it again is told. This thread goes on
            # whatever it was: nobody else takes users in.
            self._failed = time.monotonic(), trouble("intake", error)
            if len(batch) > 1 and not isinstance(error, StoreGone):
                for item in batch:  # one of them must not cost the others their places
                    self._take([item])
                return
        for (_, told), answer in zip(batch, answers, strict=True):
            told(answer)
