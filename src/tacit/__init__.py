"""Reinforcement learning that learns from people without revealing them.

The public names, loaded when they are first asked for; ``__init__.pyi`` has their types, written by
``python -m tests.public_api``. ``tacit.UCBVI`` makes agents of the algorithm ``UCBVI``.
"""

import importlib
import sys
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "core.agent": "Agent open_run",
    "core.algorithm": "Algorithm Query",
    "data.episodes": "Episodes VectorEpisodes validate_episodes",
    "core.constructors": "make_agent",
    "core.monitor": "monitor",
    "core.intake": "Receipt",
    "privacy.budget": "Budget Guarantee Relation",
    "privacy.counters": "counter",
    "privacy": "distributed local",
    "privacy.curator": "Curator JointCurator Release",
    "privacy.local": "LocalCurator",
    "privacy.errors": "BudgetExceeded Busy CheckFailed CorruptFile DoubleSpend HorizonExceeded "
    "InvalidArgument MissingExtra TacitError TacitWarning",
    "privacy.models": "DistributedDP JointDP LocalDP NonPrivate",
    "privacy.standard": "ClippedSum GramCross OneHotCounts",
    "privacy.statistic": "Block Layout Part Statistic",
    "registry": "world",
    "simulation.result": "Result",
    "simulation.run": "run",
    "simulation.sweep": "sweep",
    "store.store": "Conflict Store StoreGone",
    "store.values": "record",
    "tabular.offline": "Recommendation learn_offline",
    "tabular.policy": "MixedPolicy Policy",
    "testing.audit_agent": "audit_agent",
    "testing.check_agent": "check_agent",
    "testing.check_statistic": "check_statistic",
    "testing.mechanisms": "audit_counter audit_linear audit_samples",
    "auto": "agent",
}
_FAMILIES = ("continuous", "gym", "linear", "lq", "mixture", "papers", "tabular", "trial")
_LAZY = {name: (module, name) for module, names in _MODULES.items() for name in names.split()}
_LAZY["open"], _LAZY["validate"] = _LAZY.pop("open_run"), _LAZY.pop("validate_episodes")

if "gymnasium" in sys.modules:
    from tacit import gym as gym  # registers ours


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*_LAZY, *_FAMILIES, *_agents()])
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
    if name[:1].isupper() and (algorithm := _agents().get(name)) is not None:
        from tacit.registry import agent_entry

        return agent_entry(algorithm).make
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def _agents() -> dict[str, str]:
    """Names of the built-in agents by those of their constructors."""
    from tacit.registry import BUILT_IN

    return {target.rpartition(":")[2]: name for name, target in BUILT_IN.items()}


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
