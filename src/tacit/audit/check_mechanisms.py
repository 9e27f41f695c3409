"""Conformance checks that anyone can run on their own counters and statistics.

``check_counter`` and ``check_statistic`` are what Tacit's own pass. They raise
:class:`CheckFailed` with the number that is wrong, and return a short report otherwise. Random
checks have a fixed seed and say how improbable a false alarm is.

They find slips, not sabotage: code that recognises a check, or goes wrong only at a size that is
not tried, passes. Neither replaces the proof.
"""

from tacit.audit.check_counter import CounterReport, check_counter
from tacit.audit.check_statistic import StatisticReport, check_statistic
from tacit.privacy.errors import CheckFailed

__all__ = ["CheckFailed", "CounterReport", "StatisticReport", "check_counter", "check_statistic"]
