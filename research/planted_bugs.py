"""Agents with a privacy bug, each of which somebody could write in good faith.

Every bug says what it does and what an attacker would gain by it; they are in
:mod:`research.planted`. This is where they are planted. The audit (:func:`tacit.audit_agent`) must
fail each of them, and pass the same agent without it: ``python -m research.mutation_table`` prints
which check found what.

Some are the papers' own: noise that is drawn once, widths from raw data, a sensitivity that forgets
the horizon. They are here so that nobody has to believe in the audit. Never use one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from research.planted import leaks
from research.planted.agents import BITS, RUNNING, Planted
from research.planted.ways import planted
from research.worlds import build
from tacit.core.constructors import make_agent
from tacit.privacy.models import JointDP, LocalDP

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

    def make(self) -> Callable[..., Any]:
        """What makes the agent."""
        return partial(make_agent, self.algorithm, **dict(self.options))

    @contextmanager
    def planted(self, bug: type[Any] | None) -> Iterator[Callable[..., Any]]:
        """A context with what makes the agent with a bug, or without."""
        with planted(bug, self.algorithm) as make:
            yield partial(make, **dict(self.options))


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
}


BUGS = leaks.BUGS
"""All that are audited."""


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
    with host.planted(bug) as make:
        return audit_agent(make, host.world(), **{"progress": False} | usual | options)
