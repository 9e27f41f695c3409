"""Nothing raw reaches an algorithm: everything it is given is searched for episodes and ids.

The search follows attributes, containers, closures, bound methods, generators and their frames,
exceptions with their tracebacks, weak references, caches, and all globals of Tacit's own modules.
It does not follow the call stack (``f_back``) or ask the garbage collector for all objects: any
Python code can do that in its own process, and no library can stop it. What is tested is that
nothing is *handed over*.
"""

import functools
import gc
import sys
import types
import weakref

import numpy as np
import pytest

import tacit
from research.audit_table import WORLDS
from tacit import Block, Episodes, JointDP, registry
from tacit.data.episodes import VectorEpisodes
from tacit.tabular.ucbvi import UCBVI

PRIVATE = JointDP(1.0, 1e-6)
IDS = 10**15


def reachable(*roots):
    """Every object that can be reached from these without the stack."""
    seen = {}
    queue = list(roots)
    while queue:
        found = queue.pop()
        if type(found) in weakref.ProxyTypes:  # of what may be gone, which raises when asked
            queue.extend(gc.get_referents(found))
            continue
        if id(found) in seen or isinstance(found, (int, float, complex, np.generic, type(None))):
            continue
        seen[id(found)] = found
        queue.extend(_referents(found))
    return list(seen.values())


def _referents(found):
    if isinstance(found, types.ModuleType):
        own = found.__name__.partition(".")[0] == "tacit"
        return list(vars(found).values()) if own else []
    if isinstance(found, types.FrameType):
        return list(found.f_locals.values())
    if isinstance(found, types.TracebackType):
        return [found.tb_frame, found.tb_next]
    if isinstance(found, types.GeneratorType):
        return [found.gi_frame, found.gi_yieldfrom]
    if isinstance(found, BaseException):
        links = [found.__traceback__, found.__context__, found.__cause__]
        return [*found.args, *links, *vars(found).values()]
    if isinstance(found, weakref.ReferenceType):
        return [found()]
    if isinstance(found, types.FunctionType):
        own = (found.__module__ or "").partition(".")[0] == "tacit"
        cells = [cell.cell_contents for cell in found.__closure__ or () if _filled(cell)]
        module = sys.modules.get(found.__module__) if own else None
        return [*cells, *(found.__defaults__ or ()), found.__dict__, module]
    if isinstance(found, np.ndarray):
        return [found.base, *(found.ravel().tolist() if found.dtype == object else ())]
    if isinstance(found, type):
        own = found.__module__.partition(".")[0] == "tacit"
        return list(vars(found).values()) if own else []
    more = [found.cache_info] if isinstance(found, functools._lru_cache_wrapper) else []
    return [*gc.get_referents(found), *more]


def _filled(cell):
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def raw_in(found, data, ids):
    """What of the data or of the ids is among the objects."""
    marks = np.unique(np.concatenate([np.ravel(a) for a in _floats(data)]))
    # One half, and the ends of a trial's chances, are everybody's.
    marks = marks[np.abs(marks * 1000.0 - np.round(marks * 1000.0)) > 1e-6]
    texts = {str(i) for i in ids}
    leaks = []
    for thing in found:
        if thing is data or isinstance(thing, (Block, Episodes, VectorEpisodes)):
            leaks.append(f"{type(thing).__name__}")
        elif isinstance(thing, np.ndarray) and thing.dtype.kind == "f":
            if np.isin(thing, marks).any():
                leaks.append(f"an array of {thing.shape} with somebody's numbers")
        elif isinstance(thing, np.ndarray) and thing.dtype.kind in "iu":
            if any(np.array_equal(thing, a) for a in _whole(data)) or np.isin(thing, ids).any():
                leaks.append(f"an array of {thing.shape} with somebody's path or id")
        elif isinstance(thing, str) and any(text in thing for text in texts):
            leaks.append(f"a text with an id: {thing[:60]}")
        elif isinstance(thing, (list, tuple, set, frozenset, dict)):
            items = [i for i in thing if type(i) is int]
            if any(i in ids for i in items):
                leaks.append(f"a {type(thing).__name__} with ids")
    return leaks


def _floats(data):
    arrays = data.block().arrays if not isinstance(data, Block) else data.arrays
    # Ends of ranges are everybody's.
    return [np.unique(a[np.isfinite(a)])[1:-1] for a in arrays.values() if a.dtype.kind == "f"]


def _whole(data):
    return [a for n, a in data.block().arrays.items() if n in ("states", "actions") and a.ndim > 1]


def marked(data, rng):
    """The same episodes, with rewards that nobody else could have."""
    block = data.block()
    arrays = dict(block.arrays)
    if "rewards" in arrays:
        low, high = float(np.nanmin(arrays["rewards"])), float(np.nanmax(arrays["rewards"]))
        spread = (high - low) or 0.5
        arrays["rewards"] = low + spread * rng.uniform(0.01, 0.99, arrays["rewards"].shape)
    return type(data)(**arrays, user_ids=data.user_ids)


OWN_WORLDS = {
    "centred_improvement": "riverswim:states=4,horizon=12",
    "action_centred": "micro_randomised:decisions=20,contexts=3",
    "certainty_equivalence": "research.worlds.random_system:n=2,d=1,horizon=5,seed=500",
    "linopt_sampled": "research.worlds.currents:rows=5,columns=6,dimension=3,horizon=4,samples=4",
}
EXTRA = (("concurrent_psrl", {"running": 0}),)


def _cases():
    cases = []
    for name, target in registry.BUILT_IN.items():
        cases.append((name, target, {}))
    targets = registry.BUILT_IN
    cases += [(name, targets[name], options) for name, options in EXTRA]
    return [pytest.param(*case, id=f"{case[0]} {case[2] or ''}".strip()) for case in cases]


@pytest.mark.parametrize(("name", "target", "options"), _cases())
def test_no_agent_hands_its_algorithm_anything_raw(name, target, options):
    """With real noise, ids, a block that is through and one that waits."""
    make = registry.agent_entry(name).make
    world = registry.build_world(OWN_WORLDS.get(name) or WORLDS[target.split(".")[1]])
    if not name.startswith("pessimistic") and "centred" not in name:
        options = {"schedule": "fixed:size=12", **options}
    try:
        agent = make(world.spec, 24, PRIVATE, **options)
    except tacit.InvalidArgument as error:
        pytest.skip(f"it takes no JointDP: {error}")
    rng = np.random.default_rng(0)
    # At least one whole block, or several small ones: every agent has asked by then.
    users = max(agent.block_users, 12)
    first = marked(world.simulate(agent.policy, users, rng, "episodes"), rng)
    ids = [IDS + i for i in range(24)]
    agent.learn(first.block(), ids[:users])
    again = [(first, ids)]
    if agent.block_users > 1:
        data = world.simulate(agent.policy, agent.block_users, rng, "episodes")
        second = marked(data.take(slice(0, agent.block_users - 1)), rng)
        agent.learn(second.block(), (ids[users:] or ids)[: second.block().users])
        again.append((second, ids))
    assert agent.releases >= 1
    found = reachable(agent.algorithm, agent.state, agent.plan, agent.record)
    for data, names in again:
        assert raw_in(found, data, names) == []


class Hostile(UCBVI):
    """Looks at everything within reach whenever it has its turn."""

    name = "hostile"

    def learn(self, *known):
        queries = super().learn(*known)
        query = next(queries)
        self.looked = reachable(self, known, sys._getframe().f_locals)
        release = yield query
        self.looked += reachable(self, release, sys._getframe().f_locals)
        try:
            queries.send(release)
        except StopIteration as end:
            return end.value

    def plan(self, *known):
        plan = super().plan(*known)
        self.looked = [*getattr(self, "looked", ()), *reachable(self, known, plan)]
        return plan


def test_a_hostile_algorithm_finds_nobody():
    world = tacit.tabular.riverswim(3, 4)
    agent = tacit.make_agent(Hostile, world.spec, 24, PRIVATE, schedule="fixed:size=12")
    rng = np.random.default_rng(1)
    ids = [IDS + i for i in range(24)]
    for start in (0, 12):
        data = marked(world.simulate(agent.policy, 12, rng, "episodes"), rng)
        agent.learn(data, ids[start : start + 12])
        assert len(agent.algorithm.looked) > 100
        assert raw_in(agent.algorithm.looked, data, ids) == []


def test_the_search_would_find_what_is_there():
    """Each way that a leak could take is one that is searched."""
    world = tacit.tabular.riverswim(3, 4)
    rng, ids = np.random.default_rng(2), [IDS]
    policy = tacit.Policy.uniform(4, 3, 2)
    data = marked(world.simulate(policy, 5, rng, "episodes"), rng)
    raw = data.block()["rewards"]

    def closure():
        return raw

    def generator():
        kept = raw
        yield kept

    running = generator()
    next(running)
    try:
        local = raw
        raise ValueError("caught")
    except ValueError as error:
        caught = error
        del local
    holder = types.SimpleNamespace(inner={"deep": [raw[1:3]]})
    ways = {
        "view": raw[::2].reshape(-1),
        "copy": np.array(raw),
        "nested": holder,
        "closure": closure,
        "generator": running,
        "traceback": caught,
        "weak reference": weakref.ref(data),
        "bound method": data.block,
        "partial": functools.partial(print, raw),
    }
    for way, root in ways.items():
        assert raw_in(reachable(root), data, ids), way
    assert raw_in(reachable({"who": [IDS]}), data, ids)
    assert raw_in(reachable(f"user {IDS} came"), data, ids)
    assert raw_in(reachable(np.array([IDS])), data, ids)
    assert not raw_in(reachable({"sum": float(raw.sum())}), data, ids)
