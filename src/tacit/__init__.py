"""Reinforcement learning that learns from people without revealing them.

The public names. Everything else is reachable through its module. The privacy core is loaded at
once; worlds, agents and the run loop when they are first asked for, so that ``import tacit`` stays
cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tacit.audit.check_mechanisms import CheckFailed, check_counter, check_statistic
from tacit.audit.mechanisms import audit_counter, audit_linear, audit_samples
from tacit.privacy.budget import Budget, Relation
from tacit.privacy.counters import counter
from tacit.privacy.curators import local
from tacit.privacy.curators.gate import Curator, Release
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.curators.local import LocalCurator
from tacit.privacy.errors import (
    BudgetExceeded,
    CorruptFile,
    DoubleSpend,
    HorizonExceeded,
    InvalidArgument,
    MissingExtra,
    TacitError,
)
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.models import JointDP, LocalDP, NonPrivate
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.privacy.statistic import Block, Layout, Part, Statistic

if TYPE_CHECKING:
    from tacit import continuous, linear, lq, mixture, tabular
    from tacit.audit.audit_agent import audit_agent
    from tacit.audit.check_agent import check_agent
    from tacit.continuous.fitted_functional_q import FittedFunctionalQ
    from tacit.continuous.functional_q import FunctionalQ
    from tacit.continuous.printed_functional_q import PrintedFunctionalQ
    from tacit.core.episodes import Episodes
    from tacit.core.episodes import validate_episodes as validate
    from tacit.core.vector_episodes import VectorEpisodes
    from tacit.finite.policy import Policy
    from tacit.linear.adaptive_lsvi_ucb import AdaptiveLSVIUCB
    from tacit.linear.batched_lsvi_ucb import BatchedLSVIUCB
    from tacit.linear.lsvi_ucb import LSVIUCB
    from tacit.linear.lsvi_ucb_plus_plus import LSVIUCBPlusPlus
    from tacit.lq.certainty_equivalence import CertaintyEquivalence
    from tacit.lq.ofu import OFU
    from tacit.mixture.ldp_ucrl_vtr import LDPUCRLVTR
    from tacit.mixture.linopt_po import LinOptPO
    from tacit.mixture.linopt_vi import LinOptVI
    from tacit.simulation.result import Result
    from tacit.simulation.run import run
    from tacit.simulation.seeds import run_seeds
    from tacit.tabular.ldpob import LDPOB
    from tacit.tabular.pucb import PUCB
    from tacit.tabular.ucbpo import UCBPO
    from tacit.tabular.ucbvi import UCBVI

__version__ = "0.1.0"

_LAZY = {
    "AdaptiveLSVIUCB": ("tacit.linear.adaptive_lsvi_ucb", "AdaptiveLSVIUCB"),
    "BatchedLSVIUCB": ("tacit.linear.batched_lsvi_ucb", "BatchedLSVIUCB"),
    "CertaintyEquivalence": ("tacit.lq.certainty_equivalence", "CertaintyEquivalence"),
    "Episodes": ("tacit.core.episodes", "Episodes"),
    "FittedFunctionalQ": ("tacit.continuous.fitted_functional_q", "FittedFunctionalQ"),
    "FunctionalQ": ("tacit.continuous.functional_q", "FunctionalQ"),
    "LDPOB": ("tacit.tabular.ldpob", "LDPOB"),
    "LDPUCRLVTR": ("tacit.mixture.ldp_ucrl_vtr", "LDPUCRLVTR"),
    "LSVIUCB": ("tacit.linear.lsvi_ucb", "LSVIUCB"),
    "LSVIUCBPlusPlus": ("tacit.linear.lsvi_ucb_plus_plus", "LSVIUCBPlusPlus"),
    "LinOptPO": ("tacit.mixture.linopt_po", "LinOptPO"),
    "LinOptVI": ("tacit.mixture.linopt_vi", "LinOptVI"),
    "OFU": ("tacit.lq.ofu", "OFU"),
    "PUCB": ("tacit.tabular.pucb", "PUCB"),
    "Policy": ("tacit.finite.policy", "Policy"),
    "PrintedFunctionalQ": ("tacit.continuous.printed_functional_q", "PrintedFunctionalQ"),
    "Result": ("tacit.simulation.result", "Result"),
    "UCBPO": ("tacit.tabular.ucbpo", "UCBPO"),
    "UCBVI": ("tacit.tabular.ucbvi", "UCBVI"),
    "VectorEpisodes": ("tacit.core.vector_episodes", "VectorEpisodes"),
    "audit_agent": ("tacit.audit.audit_agent", "audit_agent"),
    "check_agent": ("tacit.audit.check_agent", "check_agent"),
    "continuous": ("tacit.continuous", None),
    "linear": ("tacit.linear", None),
    "lq": ("tacit.lq", None),
    "mixture": ("tacit.mixture", None),
    "run": ("tacit.simulation.run", "run"),
    "run_seeds": ("tacit.simulation.seeds", "run_seeds"),
    "tabular": ("tacit.tabular", None),
    "validate": ("tacit.core.episodes", "validate_episodes"),
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
    if attribute is None:
        return loaded
    from tacit.core.kinds import maker

    return maker(getattr(loaded, attribute))


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
