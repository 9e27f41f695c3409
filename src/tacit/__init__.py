"""Reinforcement learning that learns from people without revealing them.

The public names. Everything else is reachable through its module. The privacy core is loaded at
once; worlds, agents and the run loop when they are first asked for, so that ``import tacit`` stays
cheap. Agents are not listed here: ``tacit.UCBVI`` is what the class ``UCBVI`` in the module
``ucbvi`` of one of the families makes (:data:`tacit.registry.BUILT_IN`).
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from tacit.privacy.budget import Budget, Relation
from tacit.privacy.counters import counter
from tacit.privacy.curators import distributed, local
from tacit.privacy.curators.gate import Curator, Release
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.curators.local import LocalCurator
from tacit.privacy.errors import (
    BudgetExceeded,
    Busy,
    CheckFailed,
    CorruptFile,
    DoubleSpend,
    HorizonExceeded,
    InvalidArgument,
    LockTimeout,
    MissingExtra,
    TacitError,
    TacitWarning,
    WrongKey,
)
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.models import DistributedDP, JointDP, LocalDP, NonPrivate
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.privacy.statistic import Block, Layout, Part, Statistic

_HELPERS = ("Any", "TYPE_CHECKING", "importlib", "privacy", "sys")
_LOADED = [name for name in globals() if name[0] != "_" and name not in _HELPERS]

if TYPE_CHECKING:
    from tacit import continuous, linear, lq, mixture, papers, tabular
    from tacit.core.agent import Agent
    from tacit.core.algorithm import Algorithm
    from tacit.core.asks import Ask
    from tacit.core.episodes import Episodes
    from tacit.core.episodes import validate_episodes as validate
    from tacit.core.kinds import AgentKind
    from tacit.core.monitor import monitor
    from tacit.core.receipt import Receipt
    from tacit.core.vector_episodes import VectorEpisodes
    from tacit.finite.mixed_policy import MixedPolicy
    from tacit.finite.offline import Recommendation, learn_offline
    from tacit.finite.policy import Policy
    from tacit.registry import world
    from tacit.simulation.result import Result
    from tacit.simulation.run import run
    from tacit.simulation.seeds import run_seeds
    from tacit.simulation.sweep import sweep
    from tacit.testing.audit_agent import audit_agent
    from tacit.testing.check_agent import check_agent
    from tacit.testing.check_counter import check_counter
    from tacit.testing.check_statistic import check_statistic
    from tacit.testing.mechanisms import audit_counter, audit_linear, audit_samples
    from tacit.which_agent import agent

    # For type checkers; at run time the names of agents join, see _public_names.
    __all__ = ["Agent", "AgentKind", "Algorithm", "Ask", "Block", "Budget", "BudgetExceeded"]
    __all__ += ["Busy", "CheckFailed", "ClippedSum", "CorruptFile", "Curator", "DistributedDP"]
    __all__ += ["DoubleSpend", "Episodes", "GramCross", "Guarantee", "HorizonExceeded"]
    __all__ += ["InvalidArgument", "JointCurator", "JointDP", "Layout", "Ledger", "LocalCurator"]
    __all__ += ["LocalDP", "LockTimeout", "MissingExtra", "MixedPolicy", "NonPrivate"]
    __all__ += ["OneHotCounts", "Part", "Policy", "Receipt", "Recommendation", "Relation"]
    __all__ += ["Release", "Result", "Statistic", "TacitError", "TacitWarning", "VectorEpisodes"]
    __all__ += ["WrongKey", "agent", "audit_agent", "audit_counter", "audit_linear"]
    __all__ += ["audit_samples", "check_agent", "check_counter", "check_statistic", "continuous"]
    __all__ += ["counter", "distributed", "learn_offline", "linear", "local", "lq", "mixture"]
    __all__ += ["monitor", "papers", "run", "run_seeds", "sweep", "tabular", "validate", "world"]


__version__ = "0.1.0"

_LAZY = {
    "Agent": "tacit.core.agent:Agent",
    "AgentKind": "tacit.core.kinds:AgentKind",
    "Algorithm": "tacit.core.algorithm:Algorithm",
    "Ask": "tacit.core.asks:Ask",
    "Episodes": "tacit.core.episodes:Episodes",
    "MixedPolicy": "tacit.finite.mixed_policy:MixedPolicy",
    "Policy": "tacit.finite.policy:Policy",
    "Receipt": "tacit.core.receipt:Receipt",
    "Recommendation": "tacit.finite.offline:Recommendation",
    "Result": "tacit.simulation.result:Result",
    "VectorEpisodes": "tacit.core.vector_episodes:VectorEpisodes",
    "agent": "tacit.which_agent:agent",
    "audit_agent": "tacit.testing.audit_agent:audit_agent",
    "audit_counter": "tacit.testing.mechanisms:audit_counter",
    "audit_linear": "tacit.testing.mechanisms:audit_linear",
    "audit_samples": "tacit.testing.mechanisms:audit_samples",
    "check_agent": "tacit.testing.check_agent:check_agent",
    "check_counter": "tacit.testing.check_counter:check_counter",
    "check_statistic": "tacit.testing.check_statistic:check_statistic",
    "continuous": "tacit.continuous",
    "learn_offline": "tacit.finite.offline:learn_offline",
    "linear": "tacit.linear",
    "lq": "tacit.lq",
    "mixture": "tacit.mixture",
    "monitor": "tacit.core.monitor:monitor",
    "papers": "tacit.papers",
    "run": "tacit.simulation.run:run",
    "run_seeds": "tacit.simulation.seeds:run_seeds",
    "sweep": "tacit.simulation.sweep:sweep",
    "tabular": "tacit.tabular",
    "validate": "tacit.core.episodes:validate_episodes",
    "world": "tacit.registry:world",
}

if "gymnasium" in sys.modules:
    from tacit import envs as envs  # registers ours


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return _public_names()
    if name in _LAZY:
        module, _, attribute = _LAZY[name].partition(":")
        loaded = importlib.import_module(module)
        return getattr(loaded, attribute) if attribute else loaded
    if name[:1].isupper():
        from tacit.registry import agent_of_class

        if (kind := agent_of_class(name)) is not None:
            return kind
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def _public_names() -> list[str]:
    from tacit.registry import built_in_agents

    agents = [target.partition(":")[2] for target in built_in_agents().values()]
    return sorted([*_LOADED, *_LAZY, *agents])


def __dir__() -> list[str]:
    return sorted({*globals(), *_public_names()})
