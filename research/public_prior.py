"""What a public model of the world is worth to ConcurrentPSRL, if some of it is wrong.

``python -m research.public_prior`` gives the agent the rows of a model as visits that it did not
have: ten deviations of noise in every cell, times a trust that is learnt from releases. A cell is
right with an unknown rate, the same for all cells; releases say of each how much better the public
row explains it than any single next state does (a Bayes factor), and the rate by all cells
together. In wrong cells the row and the reward are those of another action of the state. Seeds 0 to
9, epsilon 1; results are in ``research/public_prior.json``, and what is stored is not run again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import tacit
from research.command_lines import Parser
from research.epsilon_cost import DELTA
from research.fewer_users import mixed_up
from research.fewer_users_linear import words
from tacit.core.algorithm import Floats
from tacit.simulation.run import noise_seed
from tacit.store.values import record
from tacit.tabular import concurrent_psrl
from tacit.tabular.posterior import VisitEstimate

STORED = Path(__file__).with_suffix(".json")
WORLDS = {
    "riverswim": ("riverswim:states=6,horizon=20", 20_000),
    "deep_sea": ("deep_sea:depth=10", 20_000),
    "grid": ("grid:side=5,horizon=20", 40_000),
}
WRONG: tuple[float | None, ...] = (None, 0.0, 0.1, 0.3, 1.0)
SEEDS = range(10)
# Deviations of noise that a cell which is surely right has for nothing, and how fast they fade.
_STRENGTH, _FADES = 10.0, 4.0


class PriorEvidence(VisitEstimate):
    """Evidence with that of a public model added, as far as it is trusted."""

    rows: Floats
    means: Floats

    @property
    def trust(self) -> Floats:
        """The chance of every cell that its public row is right, (L, S, A)."""
        seen = np.maximum(super().entries, 0.0)
        along = self.rows / np.linalg.norm(self.rows, axis=-1, keepdims=True)
        right = (seen * along).sum(axis=-1) ** 2 / 2.0
        most = seen.max(axis=-1) ** 2 / 2.0
        others = most + np.log(np.exp(seen**2 / 2.0 - most[..., np.newaxis]).mean(axis=-1))
        factor = np.exp(np.clip(right - others, -30.0, 30.0))
        rate, chance = 0.9, np.full(factor.shape, 0.9)
        for _ in range(30):
            chance = rate * factor / (rate * factor + 1.0 - rate)
            rate = float((chance.sum() + 9.0) / (chance.size + 10.0))
        return chance

    @property
    def _given(self) -> Floats:
        given: Floats = _STRENGTH * self.trust**_FADES
        return given

    @property
    def entries(self) -> Floats:
        """Next states, with those of the model."""
        return super().entries + self._given[..., np.newaxis] * self.rows

    @property
    def rewards(self) -> Floats:
        """Rewards, with those of the model."""
        return super().rewards + self._given * self.means


def believed(world: Any, wrong: float, seed: int) -> type[PriorEvidence]:
    """Evidence by a model of which a share of the cells is wrong."""
    rng, model = np.random.default_rng([seed, 78]), world.model
    rows, means = model.transitions[:1].copy(), model.mean_rewards[:1].copy()
    cells = rng.random((model.states, model.actions)) < wrong
    for state, action in np.argwhere(cells).tolist():
        other = (action + 1 + int(rng.integers(model.actions - 1))) % model.actions
        rows[0, state, action] = model.transitions[0, state, other]
        means[0, state, action] = model.mean_rewards[0, state, other]
    return record(type("Believed", (PriorEvidence,), {"rows": rows, "means": means}))


def measured(name: str, wrong: float | None) -> list[int | None]:
    """Users to 90 % of every seed; without a model where ``wrong`` is ``None``."""
    text, users = WORLDS[name]
    found: list[int | None] = []
    for seed in SEEDS:
        world = mixed_up(tacit.world(text), seed)
        kind = VisitEstimate if wrong is None else believed(world, wrong, seed)
        with mock.patch.object(concurrent_psrl, "VisitEstimate", kind):
            privacy = tacit.JointDP(1.0, DELTA)
            agent = tacit.ConcurrentPSRL(
                world.spec, users, privacy, seed=seed, noise_seed=noise_seed(seed)
            )
            result = tacit.run(agent, world, seed=seed, progress=False)
        found.append(result.users_to_90)
    return found


def table(stored: dict[str, Any]) -> str:
    """In Markdown: the median, and the 10 % and 90 % points."""
    shown = ["no model" if w is None else f"{w:.0%} wrong" for w in WRONG]
    lines = [f"| world | {' | '.join(shown)} |", "|---|" + "---:|" * len(WRONG)]
    for name in WORLDS:
        row = [stored.get(f"{name}, {w}") for w in WRONG]
        cells = ["-" if users is None else words(users) for users in row]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def load() -> dict[str, Any]:
    """What is stored."""
    found: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is missing, stores and prints."""
    parser = Parser(prog="python -m research.public_prior", description=__doc__.partition("\n")[0])
    parser.add_argument("--show", action="store_true", help="only show what is stored")
    given, stored = parser.parse_args(arguments), load()
    for name in () if given.show else WORLDS:
        for wrong in WRONG:
            key = f"{name}, {wrong}"
            if key not in stored:
                stored[key] = measured(name, wrong)
                print(key, words(stored[key]), file=sys.stderr, flush=True)
                STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    print(table(stored))
    return 0


if __name__ == "__main__":
    sys.exit(main())
