"""Reinforcement learning that learns from people without revealing them.

The public names. Everything else is reachable through its module. The privacy core is loaded at
once; worlds, agents and the run loop when they are first asked for, so that ``import tacit`` stays
cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tacit.privacy import local
from tacit.privacy.audit import audit_counter, audit_linear, audit_samples
from tacit.privacy.budget import Budget, Relation
from tacit.privacy.checks import CheckFailed, check_counter, check_statistic
from tacit.privacy.counters import counter
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import (
    BudgetExceeded,
    CorruptFile,
    DoubleSpend,
    HorizonExceeded,
    InvalidArgument,
    MissingExtra,
    TacitError,
)
from tacit.privacy.gate import Curator, Release
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.local import LocalCurator
from tacit.privacy.models import JointDP, LocalDP, NonPrivate
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.privacy.statistic import Block, Layout, Part, Statistic

if TYPE_CHECKING:
    from tacit import continuous, linear, lq, mixture, tabular
    from tacit.checking.audit import audit_agent
    from tacit.checks import check_agent
    from tacit.continuous.fitted import FittedFunctionalQ
    from tacit.continuous.online import FunctionalQ
    from tacit.continuous.printed import PrintedFunctionalQ
    from tacit.episodes import Episodes
    from tacit.episodes import validate_episodes as validate
    from tacit.linear.adaptive_lsvi_ucb import AdaptiveLSVIUCB
    from tacit.linear.batched_lsvi_ucb import BatchedLSVIUCB
    from tacit.linear.lsvi_ucb import LSVIUCB
    from tacit.linear.lsvi_ucb_plus_plus import LSVIUCBPlusPlus
    from tacit.loop import run, run_seeds
    from tacit.lq.certainty_equivalence import CertaintyEquivalence
    from tacit.lq.ofu import OFU
    from tacit.mixture.ldp_ucrl_vtr import LDPUCRLVTR
    from tacit.mixture.linopt_po import LinOptPO
    from tacit.mixture.linopt_vi import LinOptVI
    from tacit.policy import Policy
    from tacit.result import Result
    from tacit.tabular.ldpob import LDPOB
    from tacit.tabular.pucb import PUCB
    from tacit.tabular.ucbpo import UCBPO
    from tacit.tabular.ucbvi import UCBVI
    from tacit.vector_episodes import VectorEpisodes

__version__ = "0.1.0"

_LAZY = {
    "AdaptiveLSVIUCB": ("tacit.linear.adaptive_lsvi_ucb", "AdaptiveLSVIUCB"),
    "BatchedLSVIUCB": ("tacit.linear.batched_lsvi_ucb", "BatchedLSVIUCB"),
    "CertaintyEquivalence": ("tacit.lq.certainty_equivalence", "CertaintyEquivalence"),
    "Episodes": ("tacit.episodes", "Episodes"),
    "FittedFunctionalQ": ("tacit.continuous.fitted", "FittedFunctionalQ"),
    "FunctionalQ": ("tacit.continuous.online", "FunctionalQ"),
    "LDPOB": ("tacit.tabular.ldpob", "LDPOB"),
    "LDPUCRLVTR": ("tacit.mixture.ldp_ucrl_vtr", "LDPUCRLVTR"),
    "LSVIUCB": ("tacit.linear.lsvi_ucb", "LSVIUCB"),
    "LSVIUCBPlusPlus": ("tacit.linear.lsvi_ucb_plus_plus", "LSVIUCBPlusPlus"),
    "LinOptPO": ("tacit.mixture.linopt_po", "LinOptPO"),
    "LinOptVI": ("tacit.mixture.linopt_vi", "LinOptVI"),
    "OFU": ("tacit.lq.ofu", "OFU"),
    "PUCB": ("tacit.tabular.pucb", "PUCB"),
    "Policy": ("tacit.policy", "Policy"),
    "PrintedFunctionalQ": ("tacit.continuous.printed", "PrintedFunctionalQ"),
    "Result": ("tacit.result", "Result"),
    "UCBPO": ("tacit.tabular.ucbpo", "UCBPO"),
    "UCBVI": ("tacit.tabular.ucbvi", "UCBVI"),
    "VectorEpisodes": ("tacit.vector_episodes", "VectorEpisodes"),
    "audit_agent": ("tacit.checking.audit", "audit_agent"),
    "check_agent": ("tacit.checks", "check_agent"),
    "continuous": ("tacit.continuous", None),
    "linear": ("tacit.linear", None),
    "lq": ("tacit.lq", None),
    "mixture": ("tacit.mixture", None),
    "run": ("tacit.loop", "run"),
    "run_seeds": ("tacit.loop", "run_seeds"),
    "tabular": ("tacit.tabular", None),
    "validate": ("tacit.episodes", "validate_episodes"),
}

__all__ = [
    "LDPOB",
    "LDPUCRLVTR",
    "LSVIUCB",
    "OFU",
    "PUCB",
    "UCBPO",
    "UCBVI",
    "AdaptiveLSVIUCB",
    "BatchedLSVIUCB",
    "Block",
    "Budget",
    "BudgetExceeded",
    "CertaintyEquivalence",
    "CheckFailed",
    "ClippedSum",
    "CorruptFile",
    "Curator",
    "DoubleSpend",
    "Episodes",
    "FittedFunctionalQ",
    "FunctionalQ",
    "GramCross",
    "Guarantee",
    "HorizonExceeded",
    "InvalidArgument",
    "JointCurator",
    "JointDP",
    "LSVIUCBPlusPlus",
    "Layout",
    "Ledger",
    "LinOptPO",
    "LinOptVI",
    "LocalCurator",
    "LocalDP",
    "MissingExtra",
    "NonPrivate",
    "OneHotCounts",
    "Part",
    "Policy",
    "PrintedFunctionalQ",
    "Relation",
    "Release",
    "Result",
    "Statistic",
    "TacitError",
    "VectorEpisodes",
    "audit_agent",
    "audit_counter",
    "audit_linear",
    "audit_samples",
    "check_agent",
    "check_counter",
    "check_statistic",
    "continuous",
    "counter",
    "linear",
    "local",
    "lq",
    "mixture",
    "run",
    "run_seeds",
    "tabular",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    loaded = importlib.import_module(module)
    return loaded if attribute is None else getattr(loaded, attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
