"""Trials: few people with long histories, whose actions are drawn with known chances."""

from tacit.trial.spec import TrialSpec

__all__ = ["TrialSpec"]
