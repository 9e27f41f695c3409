"""Agents: their constructors, and what they learn from, with arguments of which some are junk.

An agent that refuses must be as it was, down to the noise that it would draw next.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from research.hostile.calls import Call
from research.hostile.fuzzing import EntryPoint, Strategy
from research.hostile.small import Small, local_agents, small_agents
from tacit.privacy.statistic import Block
from tacit.testing.recording import snapshot


def agent_entries() -> list[EntryPoint]:
    """Every agent made and taught, and those of devices with reports."""
    entries = []
    for small in small_agents():
        made = Call(small.make, small.all_arguments)
        entries.append(made.entry(f"{small.name}: made"))
        entries.append(_learn_call(small).entry(f"{small.name}: learn"))
    for small in local_agents():
        entries.append(_reports_call(small).entry(f"{small.name}: learn_reports"))
    return entries


def _state(arguments: dict[str, Any]) -> Any:
    return snapshot(arguments["agent"])


def _learn_call(small: Small) -> Call:
    def learn(agent: Any, data: Any, user_ids: Any) -> None:
        agent.learn(data, user_ids)

    def good() -> dict[str, Any]:
        agent = small()
        users = min(20, agent.block_users)
        return {"agent": agent, "data": small.episodes(agent, users), "user_ids": None}

    strange = {"data": _misshapen(small)}
    return Call(learn, good, fixed=("agent",), watched=_state, strange=strange)


def _misshapen(small: Small) -> Strategy:
    """Blocks whose shapes, names or types are not what the agent asks for."""
    block = small.episodes(small(), 5)

    @st.composite
    def corrupted(draw: Any) -> Any:
        arrays: dict[str, NDArray[Any]] = {k: np.array(a) for k, a in block.arrays.items()}
        name = draw(st.sampled_from(sorted(arrays)))
        how = draw(st.integers(0, 6))
        array = arrays[name]
        if how == 0:
            del arrays[name]
        elif how == 1:
            arrays[name] = array[:, :-1] if array.ndim > 1 else array[:, np.newaxis]
        elif how == 2:
            arrays[name] = array[..., np.newaxis]
        elif how == 3:
            arrays[name] = np.repeat(array, 2, axis=-1) if array.ndim > 1 else array.astype(float)
        elif how == 4:
            arrays[name] = array.reshape(len(array), -1)[:, :0]
        elif how == 5:
            return draw(st.sampled_from([block.arrays, [block], "episodes", None, 3]))
        else:
            arrays["versions"] = np.full(5, draw(st.integers(1, 2**62)))
        return Block(5, arrays)

    return corrupted()


def _reports_call(small: Small) -> Call:
    def learn_reports(agent: Any, reports: Any, user_ids: Any) -> None:
        agent.learn_reports(reports, user_ids)

    def good() -> dict[str, Any]:
        agent = small()
        rows = np.zeros((agent.block_users, agent.statistic.layout.size))
        return {"agent": agent, "reports": rows, "user_ids": None}

    return Call(learn_reports, good, fixed=("agent",), watched=_state)
