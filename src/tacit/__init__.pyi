"""Types of the public names. Written by ``python -m tests.public_api``."""

from os import PathLike
from typing import Any, Literal

from tacit import continuous, gym, linear, lq, mixture, papers, tabular, trial
from tacit.auto import agent
from tacit.core.agent import Agent
from tacit.core.agent import open_run as open
from tacit.core.algorithm import Algorithm, Query
from tacit.core.constructors import make_agent
from tacit.core.intake import Receipt
from tacit.core.monitor import monitor
from tacit.core.problem import Schedule
from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.data.episodes import validate_episodes as validate
from tacit.privacy import distributed, local
from tacit.privacy.budget import Budget, Guarantee, Relation
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
from tacit.privacy.local import LocalCurator
from tacit.privacy.models import DistributedDP, JointDP, LocalDP, NonPrivate, Privacy
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.privacy.statistic import Block, Layout, Part, Statistic
from tacit.registry import world
from tacit.simulation.result import Result
from tacit.simulation.run import run
from tacit.simulation.sweep import sweep
from tacit.store.store import Conflict, Store, StoreGone
from tacit.store.values import record
from tacit.tabular.offline import Recommendation, learn_offline
from tacit.tabular.policy import MixedPolicy, Policy
from tacit.testing.audit_agent import audit_agent
from tacit.testing.check_agent import check_agent
from tacit.testing.check_statistic import check_statistic
from tacit.testing.mechanisms import audit_counter, audit_linear, audit_samples

__version__: str

def ActionCentred(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    own: bool = True,
    report: float = 0.0,
    by_feature: bool = False,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def CentredImprovement(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    window: int = 10,
    rounds: int = 2,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def CertaintyEquivalence(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    control_noise: float = 3.0,
    explore: float = 1.0,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def ConcurrentPSRL(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    stationary: bool | None = None,
    running: int = 24,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def FittedFunctionalQ(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    serve: Literal["later", "most", "all"] = "later",
    ends: bool | None = None,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def KernelLSVI(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def LSVIUCB(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    scale: float = 1.0,
    stationary: bool | None = None,
    growth: float = 1.3,
    statistic: Literal["auto", "features", "counts"] = "auto",
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def LSVIUCBPlusPlus(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    scale: float = 1.0,
    stationary: bool | None = None,
    growth: float = 1.3,
    statistic: Literal["auto", "features", "counts"] = "auto",
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def LinOptPO(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    scale: float = 1.0,
    stationary: bool | None = None,
    growth: float = 1.3,
    statistic: Literal["auto", "model", "counts"] = "auto",
    eta: float = 1.0,
    error: float = 0.05,
    steps: int = 2000,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def LinOptSampled(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    scale: float = 1.0,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def LinOptVI(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    scale: float = 1.0,
    stationary: bool | None = None,
    growth: float = 1.3,
    statistic: Literal["auto", "model", "counts"] = "auto",
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def LinearPosterior(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    stationary: bool | None = None,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def ModelPosterior(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def PessimisticImprovement(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    behaviour: Policy | Literal["uniform", "logged", "unknown"] = "uniform",
    confidence: float = 0.95,
    judged: float | None = None,
    caution: float = 0.5,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def PessimisticLSVI(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    behaviour: Policy | Literal["uniform", "logged", "unknown"] = "uniform",
    confidence: float = 0.95,
    judged: float | None = None,
    caution: float = 0.5,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def PessimisticVI(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    behaviour: Policy | Literal["uniform", "logged", "unknown"] = "uniform",
    confidence: float = 0.95,
    judged: float | None = None,
    caution: float = 0.5,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def PolicyImprovement(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    growth: float = 4.0,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def UCBPO(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    scale: float = 1.0,
    stationary: bool | None = None,
    eta: float = 1.0,
    error: float = 0.05,
    steps: int = 2000,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...
def UCBVI(
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    scale: float = 1.0,
    stationary: bool | None = None,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | PathLike[str] = "",
    name: str = "run",
) -> Agent: ...

__all__ = [
    "LSVIUCB",
    "UCBPO",
    "UCBVI",
    "ActionCentred",
    "Agent",
    "Algorithm",
    "Block",
    "Budget",
    "BudgetExceeded",
    "Busy",
    "CentredImprovement",
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
    "check_statistic",
    "continuous",
    "counter",
    "distributed",
    "gym",
    "learn_offline",
    "linear",
    "local",
    "lq",
    "make_agent",
    "mixture",
    "monitor",
    "open",
    "papers",
    "record",
    "run",
    "sweep",
    "tabular",
    "trial",
    "validate",
    "world",
]
