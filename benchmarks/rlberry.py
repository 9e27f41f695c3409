"""Runs of rlberry's agents, in an environment of its own: arrays are exchanged by file."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.simulation.run import PermutedWorld
from tacit.tabular.world import TabularWorld

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers"


def permuted(world: TabularWorld, seed: int) -> PermutedWorld:
    """The peer breaks ties to the first action; that must not be the best or the worst one."""
    return PermutedWorld.draw(world, np.random.default_rng(seed))


def played(
    agent: str, world: TabularWorld, episodes: int, seeds: range, compiled: bool, **more: Any
) -> dict[str, NDArray[Any]]:
    """Runs of an agent, each with actions in an order of its own."""
    model = world.model
    labels = [list(permuted(world, seed).permutation) for seed in seeds]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "worlds.npz"), Path(folder, "runs.npz")
        np.savez(
            source,
            transitions=np.stack([model.transitions[0][:, label] for label in labels]),
            rewards=np.stack([model.mean_rewards[0][:, label] for label in labels]),
            start=model.start,
            seeds=np.array(seeds),
            horizon=model.horizon,
            episodes=episodes,
            compiled=compiled,
            **more,
        )
        script = HERE / "peers" / f"rlberry_{agent}.py"
        subprocess.run([PEERS / "bin" / "python", script, source, target], check=True, cwd=folder)
        with np.load(target) as runs:
            return dict(runs)
