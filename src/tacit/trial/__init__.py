"""Trials: few people with long histories, whose actions are drawn with known chances."""

from tacit.trial.policy import TrialPolicy
from tacit.trial.spec import TrialSpec
from tacit.trial.statistics import CentredScores

__all__ = ["CentredScores", "TrialPolicy", "TrialSpec"]
