"""Typed errors: what a caller did wrong, in words, with nothing changed.

These are raised for *public* mistakes only (shapes, lengths, budgets, files). What a user's data
looks like never decides whether an error is raised: values that are not finite or out of range
contribute the zero statistic instead (see :mod:`tacit.privacy.statistic`).
"""


class TacitError(Exception):
    """Any error that Tacit raises on purpose."""


class TacitWarning(UserWarning):
    """Something allowed that a careful reader would ask about."""


class InvalidArgument(TacitError, ValueError):
    """An argument is outside what is allowed; the message names it, its value and the range."""


class BudgetExceeded(TacitError):
    """A release would cost more than the declared budget leaves; nothing was released."""


class HorizonExceeded(TacitError):
    """A counter or curator was asked for more releases or users than it was declared for."""


class DoubleSpend(TacitError):
    """A process went on, after a fork, with what another process publishes from."""


class Busy(TacitError, RuntimeError):
    """A call came within a call of the same thread, as from a signal handler; nothing was done."""


class CorruptFile(TacitError):
    """A file is damaged, truncated, foreign, or of a version that this release cannot read."""


class MissingExtra(TacitError, ImportError):
    """An optional dependency is needed; the message says which extra installs it."""


class CheckFailed(TacitError, AssertionError):
    """A conformance check failed; the message says which and by how much."""


def require(passed: bool, message: str) -> None:
    """Fails a conformance check unless it passed."""
    if not passed:
        raise CheckFailed(message)
