"""Reinforcement learning that learns from people without revealing them.

The public names, loaded when they are first asked for, from where the stub ``__init__.pyi`` imports
them; its constructors are written by ``python -m tests.public_api``. ``tacit.UCBVI`` makes agents
of the algorithm ``UCBVI``.
"""

import ast
import importlib
import sys
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _public_names() -> dict[str, tuple[str, str]]:
    """Module and attribute of each name that the stub imports."""
    head = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").partition("\ndef ")[0]
    imports = (node for node in ast.parse(head).body if isinstance(node, ast.ImportFrom))
    ours = [node for node in imports if str(node.module).partition(".")[0] == "tacit"]
    return {a.asname or a.name: (str(node.module), a.name) for node in ours for a in node.names}


_LAZY = _public_names()

if "gymnasium" in sys.modules:
    from tacit import gym as gym  # registers ours


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*(_LAZY.keys() - {"Privacy", "Schedule"}), *_agents()])
    module, attribute = _LAZY.get(name, ("tacit", name))
    if module != "tacit" and not (module == "tacit.privacy" and name.islower()):
        return getattr(importlib.import_module(module), attribute)
    if name[:1].islower():
        try:
            return importlib.import_module(f"{module}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{module}.{name}":
                raise
    elif name[:1].isupper() and (algorithm := _agents().get(name)) is not None:
        from tacit.registry import agent_entry

        return agent_entry(algorithm).make
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def _agents() -> dict[str, str]:
    """Names of the built-in agents by those of their constructors."""
    from tacit.registry import BUILT_IN

    return {target.rpartition(":")[2]: name for name, target in BUILT_IN.items()}


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
