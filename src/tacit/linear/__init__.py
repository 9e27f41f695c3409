"""Linear MDPs: transitions and rewards that are linear in known features."""

from tacit.linear.worlds import LinearSpec, LinearWorld, linear_from_tabular, simplex, two_state

__all__ = ["LinearSpec", "LinearWorld", "linear_from_tabular", "simplex", "two_state"]
