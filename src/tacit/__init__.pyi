"""Types of the public names, which are loaded when they are asked for."""

from tacit import continuous, gym, linear, lq, mixture, papers, tabular
from tacit.core.agent import Agent
from tacit.core.agent import open_run as open  # noqa: A004
from tacit.core.algorithm import Algorithm, Query
from tacit.core.intake import Receipt
from tacit.core.kinds import AgentKind
from tacit.core.monitor import monitor
from tacit.data.episodes import Episodes
from tacit.data.episodes import validate_episodes as validate
from tacit.data.vector_episodes import VectorEpisodes
from tacit.finite.mixed_policy import MixedPolicy
from tacit.finite.offline import Recommendation, learn_offline
from tacit.finite.policy import Policy
from tacit.privacy import distributed, local
from tacit.privacy.budget import Budget, Relation
from tacit.privacy.counters import counter
from tacit.privacy.curator import Curator, JointCurator, Release
from tacit.privacy.errors import (
    BudgetExceeded,
    Busy,
    CheckFailed,
    CorruptFile,
    DoubleSpend,
    HorizonExceeded,
    InvalidArgument,
    MissingExtra,
    TacitError,
    TacitWarning,
)
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.local import LocalCurator
from tacit.privacy.models import DistributedDP, JointDP, LocalDP, NonPrivate
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.privacy.statistic import Block, Layout, Part, Statistic
from tacit.registry import world
from tacit.simulation.result import Result
from tacit.simulation.run import run
from tacit.simulation.seeds import run_seeds
from tacit.simulation.sweep import sweep
from tacit.store.store import Conflict, Store, StoreGone
from tacit.store.values import record
from tacit.testing.audit_agent import audit_agent
from tacit.testing.check_agent import check_agent
from tacit.testing.check_counter import check_counter
from tacit.testing.check_statistic import check_statistic
from tacit.testing.mechanisms import audit_counter, audit_linear, audit_samples
from tacit.which_agent import agent

__version__: str

ActorCritic: AgentKind
CertaintyEquivalence: AgentKind
ConcurrentPSRL: AgentKind
FittedFunctionalQ: AgentKind
KernelLSVI: AgentKind
LSVIUCB: AgentKind
LSVIUCBPlusPlus: AgentKind
LinOptPO: AgentKind
LinOptSampled: AgentKind
LinOptVI: AgentKind
LinearPosterior: AgentKind
ModelPosterior: AgentKind
PessimisticImprovement: AgentKind
PessimisticLSVI: AgentKind
PessimisticVI: AgentKind
PolicyImprovement: AgentKind
UCBPO: AgentKind
UCBVI: AgentKind

__all__ = [
    "LSVIUCB",
    "UCBPO",
    "UCBVI",
    "ActorCritic",
    "Agent",
    "AgentKind",
    "Algorithm",
    "Block",
    "Budget",
    "BudgetExceeded",
    "Busy",
    "CertaintyEquivalence",
    "CheckFailed",
    "ClippedSum",
    "ConcurrentPSRL",
    "Conflict",
    "CorruptFile",
    "Curator",
    "DistributedDP",
    "DoubleSpend",
    "Episodes",
    "FittedFunctionalQ",
    "GramCross",
    "Guarantee",
    "HorizonExceeded",
    "InvalidArgument",
    "JointCurator",
    "JointDP",
    "KernelLSVI",
    "LSVIUCBPlusPlus",
    "Layout",
    "LinOptPO",
    "LinOptSampled",
    "LinOptVI",
    "LinearPosterior",
    "LocalCurator",
    "LocalDP",
    "MissingExtra",
    "MixedPolicy",
    "ModelPosterior",
    "NonPrivate",
    "OneHotCounts",
    "Part",
    "PessimisticImprovement",
    "PessimisticLSVI",
    "PessimisticVI",
    "Policy",
    "PolicyImprovement",
    "Query",
    "Receipt",
    "Recommendation",
    "Relation",
    "Release",
    "Result",
    "Statistic",
    "Store",
    "StoreGone",
    "TacitError",
    "TacitWarning",
    "VectorEpisodes",
    "agent",
    "audit_agent",
    "audit_counter",
    "audit_linear",
    "audit_samples",
    "check_agent",
    "check_counter",
    "check_statistic",
    "continuous",
    "counter",
    "distributed",
    "gym",
    "learn_offline",
    "linear",
    "local",
    "lq",
    "mixture",
    "monitor",
    "open",
    "papers",
    "record",
    "run",
    "run_seeds",
    "sweep",
    "tabular",
    "validate",
    "world",
]
