"""Numbers of what every agent releases, publishes and earns, to compare with another version's.

``python -m tests.golden.record`` says what differs from ``golden.json``; with ``--write`` it
records the file anew, which is right only where a difference is meant. Parts of names after the
options restrict both to these rows.

Of every quantity there is one number, in which every entry has a weight of its own. Integers must
be equal. A float may differ by 1e-9 of the quantity's norm: last bits are other processors' own. So
worlds here are without ties, where a last bit would decide which action is taken.

Agents are made and looked at through public names alone.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

import tacit
from research.worlds import build
from tacit.registry import choose_agent
from tacit.store import runs, values
from tests.golden.rows import MODELS, PAPERS, ROWS

FILE = Path(__file__).with_name("golden.json")
TOLERANCE = 1e-9
_POLICY = ("actions", "probabilities", "weights", "gains", "noise")


class Seen:
    """Arrays by the name of a quantity, as they come."""

    def __init__(self):
        self._arrays = defaultdict(list)

    def add(self, name, values):
        """Takes numbers in; ``None`` is NaN."""
        array = np.array(math.nan if values is None else values).ravel()
        self._arrays[name].append(array.astype(int) if array.dtype.kind in "bu" else array)

    def numbers(self):
        """All quantities in short."""
        return {name: _number(np.concatenate(found)) for name, found in self._arrays.items()}


def _number(values):
    places = np.arange(values.size)
    if values.dtype.kind == "i":
        return int(values @ (1 + places % 997)), 0.0
    # No number is one, too: 0.7, say.
    values = np.nan_to_num(values, nan=0.7, posinf=1.3, neginf=-1.3)
    weights = 0.5 + (places * math.sqrt(0.5)) % 1.0
    return float(values @ weights), float(np.linalg.norm(values))


def watch(seen):
    """All releases that agents are given within, in ``seen``."""
    commit = runs.release

    def watched(*given):
        commit(*given)
        release = values.load(given[-1].value)
        for name, part in release.parts.items():
            seen.add(f"released {name}", part)
            seen.add("std", release.std[name])
        seen.add("cost", release.cost)

    return mock.patch.object(runs, "release", watched)


class Recording:
    """One row: two agents that meet the same kind of users."""

    def __init__(self, row):
        self.row, self.world, self.privacy = row, build(row.world), MODELS[row.model]

    def agent(self, **store):
        """A new agent, or the one of this store; its noise is simulated."""
        return choose_agent(self.row.agent).build(
            self.world.spec, self.row.users, self.privacy, seed=0, **store
        )

    def run(self, seen):
        """What ``tacit.run`` reports of an agent."""
        with watch(seen):
            agent = self.agent()
            result = tacit.run(agent, self.world, seed=0, progress=False)
        seen.add("served", result.served)
        seen.add("values", result.values)
        seen.add("greedy values", result.greedy_values)
        for name in ("users_to_90", "greedy_users_to_90"):
            found = getattr(result, name)
            seen.add(name.replace("_", " "), -1 if found is None else found)
        if (proven := agent.guarantee) is not None:
            seen.add("guarantee", [proven.epsilon, proven.delta, proven.mu or 0.0])

    def resume(self, seen, folder):
        """Gives one by one to another agent, which is saved in mid-block and resumed."""
        rng, came, resumed = np.random.default_rng(5), 0, False
        with watch(seen):
            agent = self.agent(store=folder / "runs.db")
            while (users := agent.block_users) > 0:
                data = self.world.simulate(agent.policy, users, rng, "episodes")
                # Devices report for a whole block.
                half = 0 if self.row.model == "reports" else users // 2
                self._learn(agent, data.take(slice(0, half)), came)
                if not resumed and (agent.releases or users == self.row.users):
                    agent.store.close()
                    agent, resumed = self.agent(store=folder / "runs.db"), True
                self._learn(agent, data.take(slice(half, None)), came + half)
                came += users
                self._look(agent, seen, folder)

    def _learn(self, agent, data, came):
        if not data.users:
            return
        if self.row.model == "reports":
            several = [data.take(slice(i, i + 1)).block() for i in range(data.users)]
            report = partial(tacit.local.report, agent.statistic, privacy=self.privacy)
            reports = [report(block, noise_seed=came + i) for i, block in enumerate(several)]
            agent.learn_reports(np.array(reports))
        elif "ids" in self.row.model:
            people = self.row.users // 2
            agent.learn(data, user_ids=[(came + i) % people for i in range(data.users)])
        else:
            agent.learn(data)

    def _look(self, agent, seen, folder):
        for kind, policy in (("policy", agent.policy), ("greedy", agent.greedy_policy)):
            policy.publish(folder / "policy")
            with np.load(folder / "policy", allow_pickle=False) as arrays:
                for name in _POLICY:
                    if name in arrays:
                        seen.add(f"{kind} {name}", arrays[name])


def record(row, *, resume=True):
    """The numbers of a row; of its first agent only, if nothing is resumed."""
    recording, run, resumed = Recording(row), Seen(), Seen()
    recording.run(run)
    if not resume:
        return run.numbers()
    # Nothing here has to survive a power failure.
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        recording.resume(resumed, Path(folder))
    return run.numbers() | {f"resumed {k}": v for k, v in resumed.numbers().items()}


def record_paper(name):
    """The numbers of a paper's algorithm."""
    result, seen = PAPERS[name](), Seen()
    for name in ("values", "estimates", "optimal_value"):
        seen.add(name.replace("_", " "), getattr(result, name))
    for name, value in [*result.more.items(), *result.constants.items()]:
        seen.add(name, value)
    return seen.numbers()


WORK = {
    **{row.name: partial(record, row) for row in ROWS},
    **{f"paper {name}": partial(record_paper, name) for name in PAPERS},
}
"""Everything that is recorded, by name."""


def load():
    """What was recorded."""
    return json.loads(FILE.read_text())


def differences(old, new):
    """What differs, in words."""
    plans = ("q_values", "table", "resumed q_values", "resumed table")
    lines = [f"{n} is {old[n]}, and missing" for n in old if n not in new and n not in plans]
    for name, (number, norm) in new.items():
        if name not in old:
            lines.append(f"{name} is new: {number!r}")
        elif not abs(number - old[name]) <= TOLERANCE * norm:
            apart = f"{abs(number - old[name]) / norm:.1e} of its norm" if norm else "an integer"
            lines.append(f"{name} was {old[name]!r}, is {number!r}: {apart}")
    return lines


def main(arguments=None):
    """The command line; returns how many rows differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record")
    parser.add_argument("--write", action="store_true", help="record what differs anew")
    parser.add_argument("--times", action="store_true", help="say how long every row takes")
    parser.add_argument("rows", nargs="*", help="parts of names of rows; all by default")
    chosen = parser.parse_args(arguments)
    stored = load() if FILE.exists() else {}
    kept, differ, say = {name: stored[name] for name in WORK if name in stored}, 0, sys.stdout.write
    for name, make in WORK.items():
        if chosen.rows and not any(part in name for part in chosen.rows):
            continue
        start = time.process_time()
        new = make()
        if chosen.times:
            say(f"{time.process_time() - start:7.2f} s  {name}\n")
        if lines := differences(stored.get(name, {}), new):
            differ += 1
            if name in stored or not chosen.write:
                say("".join(f"{name}: {line}\n" for line in lines))
            # Fewer digits than a float has, and many more than are compared.
            kept[name] = {
                k: v if isinstance(v, int) else float(f"{v:.12g}") for k, (v, _) in new.items()
            }
    say(f"{differ} rows differ\n")
    if chosen.write:
        rows = (f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in WORK if name in kept)
        FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    return differ


if __name__ == "__main__":
    sys.exit(min(main(), 1))
