"""Linear mixture MDPs: transitions that mix known features by unknown weights."""

from tacit.mixture.spec import MixtureSpec, SampledSpec
from tacit.mixture.worlds import MixtureWorld, hard_mixture, mixture_of_models

__all__ = ["MixtureSpec", "MixtureWorld", "SampledSpec", "hard_mixture", "mixture_of_models"]
