"""Agents with a privacy bug, each of which somebody could write in good faith.

Every bug says what it does and what an attacker would gain by it; they are in
:mod:`research.planted`. This is where they are planted. The audit (:func:`tacit.audit_agent`) must
fail each of them, and pass the same agent without it: ``python -m research.mutation_table`` prints
which check found what.

Some are the papers' own: noise that is drawn once, widths from raw data, a sensitivity that forgets
the horizon. They are here so that nobody has to believe in the audit. Never use one.

What cannot be written at all, because an agent is final and its algorithm sees releases only, is in
:data:`IMPOSSIBLE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy.exc import DatabaseError

from research.planted import agents as of
from research.planted import leaks
from research.planted.agents import plant
from research.worlds import build
from tacit.core.agent import Agent
from tacit.core.algorithm import Query
from tacit.core.constructors import make_agent
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import JointDP, LocalDP
from tacit.privacy.standard import ClippedSum
from tacit.store.schema import entries

USERS = 160
"""Whom audited agents serve."""

_FEW = "fixed:size=40"
_RUNS = 25


@dataclass(frozen=True)
class Host:
    """An agent without bugs.

    Attributes:
        family: of algorithms.
        agent: its algorithm, as a text ``"module:name"``.
        place: the world it is audited on.
        options: of the agent.
    """

    family: str
    agent: str
    place: str
    options: tuple[tuple[str, Any], ...]

    @property
    def algorithm(self) -> type[Any]:
        """Class of its algorithm."""
        import importlib

        module, name = self.agent.split(":")
        found: type[Any] = getattr(importlib.import_module(module), name)
        return found

    def world(self) -> Any:
        """The world it is audited on."""
        return build(self.place)

    def make(self, bug: type[Any] | None = None) -> Callable[..., Any]:
        """What makes the agent, with or without a bug."""
        if bug is None:
            return partial(make_agent, self.algorithm, **dict(self.options))
        return partial(plant(bug, self.algorithm), **dict(self.options))


_RIVER = "riverswim:states=3,horizon=4"
_SIMPLEX = "simplex:dimension=3,states=8,actions=3,horizon=4"
_MODELS = "mixture_of_models:dimension=3,states=4,actions=4,horizon=4,seed=700"
_SYSTEM = "random_system:n=2,d=1,horizon=5,seed=500"
_LINE = "line:horizon=8"


def _host(family: str, agent: str, place: str, **options: Any) -> Host:
    usual = {"privacy": JointDP(1.0, 1e-6), "schedule": _FEW}
    given = {name: value for name, value in (usual | options).items() if value is not None}
    return Host(family, agent, place, tuple(given.items()))


_UCBVI = "tacit.tabular.ucbvi:UCBVI"
_PSRL = "tacit.tabular.concurrent_psrl:ConcurrentPSRL"
_LSVI = "tacit.linear.lsvi_ucb:LSVIUCB"
_LINOPT = "tacit.mixture.linopt_vi:LinOptVI"

RUNNING, BITS = "ConcurrentPSRL, running sums", "UCBVI, randomised response"
HOSTS: dict[str, Host] = {
    "UCBVI": _host("tabular", _UCBVI, _RIVER),
    RUNNING: _host("tabular", _PSRL, _RIVER, running=0),
    "UCBVI, local": _host("tabular", _UCBVI, _RIVER, privacy=LocalDP(4.0, 1e-6)),
    BITS: _host(
        "tabular",
        _UCBVI,
        _RIVER,
        privacy=LocalDP(4.0, 0.0, mechanism="randomised response"),
        stationary=False,
    ),
    "LSVI-UCB": _host("linear", _LSVI, _SIMPLEX, statistic="features", scale=0.1),
    "LSVI-UCB++": _host(
        "linear",
        "tacit.linear.lsvi_ucb_plus_plus:LSVIUCBPlusPlus",
        _SIMPLEX,
        statistic="features",
        scale=0.1,
    ),
    "LinOpt-VI": _host("mixture", _LINOPT, _MODELS, statistic="model"),
    "LinOpt-VI, counts": _host("mixture", _LINOPT, _MODELS, statistic="counts"),
    "certainty equivalence": _host(
        "lq", "tacit.lq.certainty_equivalence:CertaintyEquivalence", _SYSTEM
    ),
    "functional noise": _host(
        "continuous", "tacit.continuous.fitted_functional_q:FittedFunctionalQ", _LINE, serve="all"
    ),
    "policy gradients": _host("continuous", "tacit.continuous.actor_critic:ActorCritic", _LINE),
}


@dataclass(frozen=True)
class Planted:
    """A bug in an agent.

    Attributes:
        bug: what is planted.
        host: the name of the agent, in :data:`HOSTS`.
        caught: checks that must find it.
        runs: of the audit. What is rare in the noise of small statistics needs more of them.
    """

    bug: type[Any]
    host: str
    caught: tuple[str, ...]
    runs: int = _RUNS

    @property
    def name(self) -> str:
        """Bug and agent."""
        return f"{self.bug.__name__} in {self.host}"

    @property
    def what(self) -> str:
        """What it does, in a sentence."""
        return (self.bug.__doc__ or "").split("\n")[0]

    @property
    def gain(self) -> str:
        """What an attacker gains."""
        return " ".join((self.bug.__doc__ or "").split("Gain: ")[1].split())


_NOISE, _REAL, _TAILS = ("noise", "transcript noise"), ("noise",), ("transcript noise",)
_BOUND, _FLOW, _BUDGET = ("attack", "sensitivity"), ("data flow",), ("budget",)


def _in(bug: type[Any], caught: tuple[str, ...], *hosts: str, runs: int = _RUNS) -> list[Planted]:
    return [Planted(bug, host, caught, runs) for host in hosts]


BUGS: tuple[Planted, ...] = (
    *_in(
        of.half_the_noise,
        _NOISE,
        "UCBVI",
        RUNNING,
        "LSVI-UCB",
        "LinOpt-VI",
        "certainty equivalence",
        "functional noise",
    ),
    *_in(of.half_the_noise_of_reports, _REAL, "UCBVI, local"),
    *_in(
        of.noise_drawn_once,
        _NOISE,
        "UCBVI",
        "LSVI-UCB",
        "LinOpt-VI",
        "certainty equivalence",
        "functional noise",
        "policy gradients",
    ),
    *_in(of.antithetic_noise, _NOISE, "UCBVI", "certainty equivalence"),
    *_in(of.noise_redrawn, ("noise", "accounts"), RUNNING),
    *_in(of.last_part_without_noise, _NOISE, "UCBVI", "LinOpt-VI"),
    *_in(
        of.first_part_without_noise, _NOISE, "LSVI-UCB", "certainty equivalence", "functional noise"
    ),
    *_in(of.one_draw_for_all, _NOISE, "LinOpt-VI", "functional noise"),
    *_in(of.one_entry_without_noise, _NOISE, "LSVI-UCB"),
    *_in(of.noise_of_public_seed, _REAL, "UCBVI", "LinOpt-VI"),
    *_in(of.noise_replayed, ("store",), "UCBVI", "LSVI-UCB"),
    *_in(of.zero_out_noise, _NOISE, "LSVI-UCB", "LinOpt-VI", "certainty equivalence"),
    *_in(of.zero_out_sensitivity, _BOUND, "UCBVI"),
    *_in(of.one_step_sensitivity, _BOUND, "UCBVI"),
    *_in(of.BudgetOfOneBit, _BOUND, BITS),
    *_in(of.clip_removed, _BOUND, "UCBVI"),
    *_in(of.FeaturesUncut, _BOUND, "LSVI-UCB", "LinOpt-VI", "certainty equivalence"),
    *_in(of.counts_wrap, ("sensitivity",), "UCBVI"),
    *_in(of.one_cancels_all, _BOUND, "UCBVI"),
    *_in(of.TwoLeaves, _FLOW, "LSVI-UCB", "certainty equivalence", "functional noise"),
    *_in(of.WarmUpReused, _BUDGET, "UCBVI", "LinOpt-VI"),
    *_in(of.twice_the_budget, ("budget", "accounts"), "UCBVI"),
    *_in(leaks.RawWidth, _FLOW, "UCBVI"),
    *_in(leaks.RawWeights, _FLOW, "LSVI-UCB++"),
    *_in(leaks.RawClip, _FLOW, "LSVI-UCB"),
    *_in(leaks.RawEnergy, _FLOW, "LinOpt-VI"),
    *_in(leaks.RawSwitch, _FLOW, "LSVI-UCB"),
    *_in(leaks.RawStop, _FLOW, "UCBVI"),
    *_in(leaks.RawMask, _FLOW, "UCBVI"),
    *_in(leaks.RawAttribute, _FLOW, "LinOpt-VI", "certainty equivalence"),
    *_in(leaks.RawLog, _FLOW, "LSVI-UCB", "functional noise"),
    *_in(leaks.ValueInException, ("hostile users",), "UCBVI"),
    *_in(leaks.RawTau, _FLOW, "certainty equivalence"),
    *_in(of.uniform_noise, _NOISE, "UCBVI", "LSVI-UCB"),
    *_in(of.cut_noise, _TAILS, "LSVI-UCB"),
    *_in(of.cut_noise, _TAILS, "UCBVI", runs=90),
    *_in(of.coarse_noise, _NOISE, "UCBVI", "LinOpt-VI", "functional noise"),
    *_in(of.real_noise_unscaled, _REAL, "UCBVI", "LinOpt-VI", "functional noise"),
    *_in(of.noise_of_shared_generator, _REAL, "UCBVI", "LSVI-UCB", "certainty equivalence"),
    *_in(of.noise_of_the_clock, _REAL, "UCBVI", "LinOpt-VI", "LSVI-UCB"),
    *_in(of.IdsDropped, _BUDGET, "UCBVI", "LSVI-UCB", "UCBVI, local", "functional noise"),
    *_in(of.IdsSorted, _BUDGET, "UCBVI", "LinOpt-VI", "certainty equivalence"),
    *_in(of.ledger_charged_nothing, _BUDGET, "UCBVI", RUNNING, "LSVI-UCB"),
    *_in(leaks.RawRepr, _FLOW, "UCBVI", "LinOpt-VI", "functional noise"),
    *_in(leaks.RawProperty, _FLOW, "UCBVI"),
    *_in(leaks.RawProgress, _FLOW, "UCBVI", "LSVI-UCB"),
    *_in(of.uniform_noise, _TAILS, "certainty equivalence"),
    *_in(of.cut_noise, _TAILS, "LinOpt-VI", runs=120),
    *_in(of.gradients_unclipped, ("sensitivity",), "policy gradients"),
    *_in(leaks.RawMomentum, _FLOW, "policy gradients"),
    *_in(leaks.PreTrainedOnUsers, _FLOW, "policy gradients"),
)
"""All that are audited."""


def _override(name: str) -> type[Any]:
    """An agent with a method of its own."""
    return type("Overriding", (Agent,), {name: lambda *_: None})


class _Looking:
    """Looks for the curator when it plans."""

    def plan(self, *known: Any) -> Any:
        return self._curator  # type: ignore[attr-defined]


def _learn(bug: type[Any]) -> None:
    """A block of users for an algorithm that has the bug."""
    import numpy as np

    host = HOSTS["UCBVI"]
    world = host.world()
    agent = host.make(bug)(world.spec, users=USERS, noise_seed=0)
    agent.learn(world.simulate(agent.policy, 40, np.random.default_rng(0), "episodes"))


def _ask_curator(**options: Any) -> Any:
    """A release with options of its own."""
    return JointDP(1.0, 1e-6).curator(noise_seed=0).release(ClippedSum(1), **options)


def _with(**options: Any) -> Any:
    """An agent that is told where to save."""
    host = HOSTS["UCBVI"]
    return host.make()(host.world().spec, users=USERS, noise_seed=0, **options)


def _call(make: Any, *given: Any, **options: Any) -> Any:
    """A call with an argument that there is not."""
    return make(*given, **options)


def _changed_entry() -> None:
    """An entry of a ledger that is written again."""
    agent = _with()
    with agent.store.write() as db:
        db.execute(entries.update().values(event="nothing"))


IMPOSSIBLE: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    **{
        f"an agent with another {name}": (partial(_override, name), TypeError)
        for name in ("learn", "_take", "guarantee", "publish", "__repr__")
    },
    "an algorithm that reads its agent's curator": (partial(_learn, _Looking), AttributeError),
    "a masked query": (partial(_call, Query, None, mask={}), TypeError),
    "a query of public arrays": (partial(_call, Query, None, public=("rewards",)), TypeError),
    "a weighted release": (partial(_ask_curator, weights=[1.0]), TypeError),
    "a masked release": (partial(_ask_curator, mask={}), TypeError),
    "a save": (partial(_with, autosave="state"), InvalidArgument),
    "another charge than was written": (_changed_entry, DatabaseError),
    "another sampler": (partial(_call, JointDP, 1.0, 1e-6, sampler="float"), TypeError),
}
"""What the wall between agents and algorithms, and the one noise path, have closed: ways to write
bugs that are refused, with what tries them and what is raised. Of most of them something is left
that is planted above, as another curator, or a statistic that remembers whom it summed."""


def audit(planted: Planted | str, **options: Any) -> Any:
    """The audit of a bug, or of a host without one; few runs, for the checks are many.

    Args:
        planted: which.
        options: of :func:`tacit.testing.audit_agent.audit_agent`, in place of the usual ones.
    """
    from tacit.testing.audit_agent import audit_agent

    host = HOSTS[planted if isinstance(planted, str) else planted.host]
    bug = None if isinstance(planted, str) else planted.bug
    runs = _RUNS if isinstance(planted, str) else planted.runs
    usual: dict[str, Any] = {"users": USERS, "runs": runs, "rounds": 15}
    return audit_agent(host.make(bug), host.world(), **{"progress": False} | usual | options)
