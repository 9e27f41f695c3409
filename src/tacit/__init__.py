"""Reinforcement learning that learns from people without revealing them.

The public names. Everything else is reachable through its module. All are loaded when they are
first asked for, so that ``import tacit`` stays cheap; ``__init__.pyi`` has their types. Agents are
not listed here: ``tacit.UCBVI`` is what makes agents by the class ``UCBVI`` of one of the families
(:data:`tacit.registry.BUILT_IN`).
"""

import importlib
import sys
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "core.agent": "Agent open_run",
    "core.algorithm": "Algorithm Query",
    "data.episodes": "Episodes validate_episodes",
    "core.kinds": "AgentKind",
    "core.monitor": "monitor",
    "core.intake": "Receipt",
    "data.vector_episodes": "VectorEpisodes",
    "finite.mixed_policy": "MixedPolicy",
    "finite.offline": "Recommendation learn_offline",
    "finite.policy": "Policy",
    "privacy.budget": "Budget Relation",
    "privacy.counters": "counter",
    "privacy": "distributed local",
    "privacy.curator": "Curator JointCurator Release",
    "privacy.local": "LocalCurator",
    "privacy.errors": "BudgetExceeded Busy CheckFailed CorruptFile DoubleSpend HorizonExceeded "
    "InvalidArgument MissingExtra TacitError TacitWarning",
    "privacy.guarantee": "Guarantee",
    "privacy.models": "DistributedDP JointDP LocalDP NonPrivate",
    "privacy.standard": "ClippedSum GramCross OneHotCounts",
    "privacy.statistic": "Block Layout Part Statistic",
    "registry": "world",
    "simulation.result": "Result",
    "simulation.run": "run",
    "simulation.seeds": "run_seeds",
    "simulation.sweep": "sweep",
    "store.store": "Conflict Store StoreGone",
    "store.values": "record",
    "testing.audit_agent": "audit_agent",
    "testing.check_agent": "check_agent",
    "testing.check_counter": "check_counter",
    "testing.check_statistic": "check_statistic",
    "testing.mechanisms": "audit_counter audit_linear audit_samples",
    "which_agent": "agent",
}
_FAMILIES = ("continuous", "gym", "linear", "lq", "mixture", "papers", "tabular")
_LAZY = {name: (module, name) for module, names in _MODULES.items() for name in names.split()}
_LAZY["open"], _LAZY["validate"] = _LAZY.pop("open_run"), _LAZY.pop("validate_episodes")

if "gymnasium" in sys.modules:
    from tacit import gym as gym  # registers ours


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return _public_names()
    if name in ("distributed", "local"):
        return importlib.import_module(f"tacit.privacy.{name}")
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(importlib.import_module(f"tacit.{module}"), attribute)
    if name[:1].islower():
        try:
            return importlib.import_module(f"tacit.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"tacit.{name}":
                raise
    if name[:1].isupper():
        from tacit.registry import agent_of_class

        if (kind := agent_of_class(name)) is not None:
            return kind
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def _public_names() -> list[str]:
    from tacit.registry import BUILT_IN

    return sorted([*_LAZY, *_FAMILIES, *(kind for f in BUILT_IN.values() for kind in f.values())])


def __dir__() -> list[str]:
    return sorted({*globals(), *_public_names()})
