"""Trials: few people with long histories, whose actions are drawn with known chances."""

from tacit.trial.effects import Effect
from tacit.trial.plan import TrialForecast, plan_trial
from tacit.trial.policy import TrialPolicy
from tacit.trial.spec import TrialSpec
from tacit.trial.statistics import CentredScores

__all__ = ["CentredScores", "Effect", "TrialForecast", "TrialPolicy", "TrialSpec", "plan_trial"]
