"""Reinforcement learning that learns from people without revealing them.

The public names. Everything else is reachable through its module.
"""

from tacit.privacy import local
from tacit.privacy.audit import audit_counter, audit_linear, audit_samples
from tacit.privacy.budget import Budget, Relation
from tacit.privacy.checks import CheckFailed, check_counter, check_statistic
from tacit.privacy.counters import counter
from tacit.privacy.curator import Curator, JointCurator, Release
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
from tacit.privacy.local import LocalCurator
from tacit.privacy.models import JointDP, LocalDP, NonPrivate
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.privacy.statistic import Block, Layout, Part, Statistic

__version__ = "0.1.0"

__all__ = [
    "Block",
    "Budget",
    "BudgetExceeded",
    "CheckFailed",
    "ClippedSum",
    "CorruptFile",
    "Curator",
    "DoubleSpend",
    "GramCross",
    "Guarantee",
    "HorizonExceeded",
    "InvalidArgument",
    "JointCurator",
    "JointDP",
    "Layout",
    "Ledger",
    "LocalCurator",
    "LocalDP",
    "MissingExtra",
    "NonPrivate",
    "OneHotCounts",
    "Part",
    "Relation",
    "Release",
    "Statistic",
    "TacitError",
    "audit_counter",
    "audit_linear",
    "audit_samples",
    "check_counter",
    "check_statistic",
    "counter",
    "local",
]
