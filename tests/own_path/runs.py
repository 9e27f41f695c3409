"""Real runs, what their sources drew and released, and ways to plant a defect.

Nothing is simulated here: ``noise_seed`` is ``None``. Draws are recorded where they leave
:class:`tacit.privacy.noise.Noise`, releases where they leave a curator.
"""

import contextlib
import dataclasses
import random
import sys
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from unittest import mock

import numpy as np

import tacit
from tacit.privacy.errors import CheckFailed
from tacit.privacy.local import report
from tacit.privacy.noise import Noise
from tacit.testing.check_agent import Outcome
from tacit.testing.recording import RecordingCurator, Trial, frozen_clock
from tacit.testing.sample_users import joined, of_version, raw_block
from tests.own_path.rules import Draw, answers_of


@contextlib.contextmanager
def frozen_world():
    """Clocks stand still, and shared generators have a known seed; afterwards all is as before.

    Those are the clocks of :mod:`time` and the generators of NumPy, of :mod:`random` and of
    PyTorch, where it is loaded; ``datetime.now()`` is not.
    """
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    torch = sys.modules.get("torch")
    torch_state = None if torch is None else torch.get_rng_state()
    try:
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        if torch is not None:
            torch.manual_seed(0)
        with frozen_clock():
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        if torch is not None:
            torch.set_rng_state(torch_state)


def judged(name, wrong):
    """The first findings as a verdict."""
    some = "; ".join([*dict.fromkeys(wrong)][:3])
    return Outcome(name, None, CheckFailed(f"{name}: {some}") if wrong else None)


@contextlib.contextmanager
def drawing(quiet=False):
    """Writes down all that sources draw meanwhile; zeros, if it is to be quiet."""
    draws = []
    original = Noise.steps

    def steps(self, pure, scale, count):
        values = np.zeros(count, np.int64) if quiet else original(self, pure, scale, count)
        draws.append(Draw(bool(pure), float(scale), np.array(values)))
        return values

    with mock.patch.object(Noise, "steps", steps):
        yield draws


@dataclass(eq=False)
class RealRun:
    """Agents that ran in turns, and all that they drew and released."""

    agents: list[Any]
    recorder: RecordingCurator
    draws: list[Draw]

    @cached_property
    def answers(self):
        """All releases of joint curators, in their order."""
        return answers_of(self.recorder, self.draws)

    def by_agent(self):
        """Those of each of them."""
        found = {}
        for answer in self.answers:
            found.setdefault(answer.record.curator, []).append(answer)
        return list(found.values())


def serve(agent, pool, ids=None, start=0, stop=None):
    """Gives an agent users of a pool, block by block; returns where it stopped."""
    stop = pool.users if stop is None else stop
    while start < stop and agent.block_users > 0:
        end = min(stop, start + agent.block_users)
        part, who = pool.take(slice(start, end)), None if ids is None else ids[start:end]
        if "versions" in part.arrays:
            part = of_version(part, agent.policy.version)
        if agent.privacy.local:
            users = [part.take(slice(i, i + 1)) for i in range(part.users)]
            rows = [report(agent.statistic, user, agent.privacy) for user in users]
            agent.learn_reports(np.stack(rows), who)
        else:
            agent.learn(part, who)
        start = end
    return start


@dataclass(eq=False)
class RealTrial:
    """A trial of the real path: who is served, and runs that several checks look at."""

    trial: Trial
    quick: bool = False
    runs: int = 0

    def __post_init__(self):
        self.runs = self.runs or (60 if self.quick else 800)
        self.privacy = self.trial.privacy
        self.law = "laplace" if self.privacy.needs_l1 else "normal"
        self.power = 1 if self.privacy.needs_l1 else 2
        # Now: not while somebody watches.
        self.pool = self._pool()

    def make(self, **options):
        """An agent with real noise."""
        return self.trial.make(real=True, **options)

    def folder(self, name):
        """A fresh directory."""
        number = len([*self.trial.folder.iterdir()])
        path = self.trial.folder / f"{name}-{number}"
        path.mkdir(mode=0o700)
        return path

    def _pool(self):
        """Users whom the policies of a silent run served; in silence they come again."""
        if self.privacy.local:
            return joined(self.trial.first.blocks)
        agent, rng, world, seen = self.make(), self.trial.rng(21), self.trial.world, []
        with drawing(quiet=True):
            while agent.block_users > 0:
                served = world.simulate(agent.policy, agent.block_users, rng, "episodes")
                seen.append(raw_block(served))
                agent.learn(seen[-1])
        return joined(seen)

    def play(self, agents=1, *, quiet=False, ids=None, **more):
        """Fresh agents that serve the pool in turns, block by block."""
        made, users = [self.make(**more) for _ in range(agents)], self.pool.users
        places = {}
        with RecordingCurator().open() as recorder, drawing(quiet) as draws:
            while any(places.get(k, 0) < users and a.block_users for k, a in enumerate(made)):
                for k, agent in enumerate(made):
                    at = places.get(k, 0)
                    stop = min(users, at + agent.block_users)
                    places[k] = serve(agent, self.pool, ids, at, stop)
        return RealRun(made, recorder, draws)

    @cached_property
    def played(self):
        """Many real runs on the same users, two at a time."""
        found = []
        values = 0
        while len(found) < self.runs // 2 and values < 2_000_000:
            found.append(self.play(2))
            values += sum(d.values.size for d in found[-1].draws)
        return found

    @cached_property
    def models(self):
        """The model as given, and for users with one or three episodes, disjoint or not."""
        found = [("as given", {})]
        some = ((3, True),) if self.quick else ((1, False), (3, False), (3, True))
        for g, disjoint in some:
            more = {"disjoint": disjoint} if self.privacy.joint else {}
            with contextlib.suppress(Exception):
                other = dataclasses.replace(self.privacy, episodes_per_user=g, **more)
                self.make(privacy=other)
                found.append((f"{g} episodes{', disjoint' * disjoint}", {"privacy": other}))
        return found


def stacked(answers):
    """All noise of a run in one long vector, in units of its scale."""
    return np.concatenate([a.noise / a.scale for a in answers])


def mixed_ids(users, people, seed=0):
    """Ids of people who return, also within a block; 7 and "7" are one of them, "a" and "A" two."""
    who = np.random.default_rng(seed).integers(0, max(1, people), users).tolist()
    kinds = (int, str, np.int64, "u{} ".format, "U{} ".format, "u{}".format, lambda n: -1 - n)
    return [kinds[w % 7](w // 7 if w % 7 != 2 else w // 7 - 1) for w in who]


JOINT = tacit.JointDP(1.0, 1e-6)
MODELS = {
    "joint": JOINT,
    "pure": tacit.JointDP(1.0, 0.0),
    "three": tacit.JointDP(1.0, 1e-6, episodes_per_user=3),
    "local": tacit.LocalDP(1.0, 1e-6),
    "laplace": tacit.LocalDP(1.0, 0.0),
}


def trial_of(folder, privacy=JOINT, runs=20):
    """UCBVI in a small world, with few runs."""
    world = tacit.tabular.riverswim(states=3, horizon=3)
    make = partial(tacit.UCBVI, privacy=privacy, schedule="fixed:size=20")
    return RealTrial(Trial(make, world, folder, users=60), quick=True, runs=runs)


def failures(outcomes):
    """What failed, and why."""
    return {o.name: str(o.failure) for o in outcomes if o.failure is not None}


@contextlib.contextmanager
def planted(owner, name, change):
    """A method or function whose result is changed: change(original, *arguments)."""
    original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    if isinstance(original, property):
        new = property(lambda self: change(original.fget, self))
    else:

        def new(*arguments, **options):
            return change(original, *arguments, **options)

    with mock.patch.object(owner, name, new):
        yield
