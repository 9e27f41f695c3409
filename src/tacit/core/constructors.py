"""Constructors of agents: ``tacit.UCBVI(spec, users, privacy, scale=2.0)``.

:func:`make_agent` is the one that all others call, and the one for an algorithm of your own.
"""

from __future__ import annotations

import difflib
import inspect
import os
import typing
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import cache
from typing import Any

from tacit.core.agent import Agent
from tacit.core.algorithm import Algorithm
from tacit.core.arms import Arms, armed
from tacit.core.problem import Problem, Schedule
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.store.store import Store


def make_agent(
    algorithm: type[Algorithm[Any]],
    spec: Any,
    users: int,
    privacy: Privacy,
    *,
    schedule: str | Schedule = "auto",
    seed: int | None = 0,
    noise_seed: int | None = None,
    store: Store | str | os.PathLike[str] = "",
    name: str = "run",
    baseline: Any = None,
    holdout: float = 0.0,
    **options: Any,
) -> Agent:
    """Agent that learns by an algorithm.

    Args:
        algorithm: Its class.
        spec: What is known of the world.
        users: How many users are declared.
        privacy: The trust model with its budget.
        schedule: When a policy is republished: ``"auto"`` (the algorithm's own), ``"every"``,
            ``"fixed:size=100"``, ``"geometric:growth=1.5,first=1"`` or a
            :class:`~tacit.core.problem.Schedule`.
        seed: Of ties and of the first, random policy; not of the noise; a fresh one for ``None``.
        noise_seed: Reproducible noise, for simulations only: it protects no one.
        store: Where everything is kept: a file, a URL of PostgreSQL, an opened
            :class:`tacit.Store`, or memory.
        name: Of the run in its store; ``tacit.open(store, name)`` goes on with it.
        baseline: The policy that people had, which serves until there is evidence of a better one;
            or all options of :class:`~tacit.core.arms.Arms`. Without one, and without a holdout,
            the algorithm serves as it was published.
        holdout: Share of users whom the baseline (uniform actions, by default) serves for ever.
        **options: Those of the algorithm, the fields of its ``Options``.

    Raises:
        InvalidArgument: An option that the algorithm does not have, or a value that it refuses.
    """
    for option in sorted(options.keys() - {item.name for item in fields(algorithm.Options)}):
        raise _unknown(algorithm, option)
    arms = baseline if isinstance(baseline, Arms) or baseline is None else Arms(baseline)
    if holdout:
        arms = replace(arms or Arms(), holdout=holdout)
    problem = Problem(spec, users, privacy, schedule, seed, arms)
    if privacy.devices_add and not privacy.local and not algorithm.distributed:
        words = "is not made for DistributedDP: ConcurrentPSRL and LinearPosterior are"
        raise InvalidArgument(f"{algorithm.__name__} {words}")
    chosen = algorithm.Options(**options)
    made = armed(algorithm, problem)(algorithm.declared(problem, chosen), chosen)
    return Agent(made, noise_seed=noise_seed, store=store, name=name)


@cache
def constructor(algorithm: type[Algorithm[Any]]) -> Callable[..., Agent]:
    """Function that makes agents of one algorithm; its signature names every option."""

    def make(spec: Any, users: int, privacy: Privacy, **options: Any) -> Agent:
        return make_agent(algorithm, spec, users, privacy, **options)

    own = algorithm.__module__.startswith("tacit.")
    make.__module__ = "tacit" if own else algorithm.__module__  # where pickle looks for it
    make.__name__ = make.__qualname__ = algorithm.__name__
    make.__doc__ = _document(algorithm)
    vars(make).update(algorithm=algorithm, __signature__=_signature(algorithm))
    return make


def _signature(algorithm: type[Algorithm[Any]]) -> inspect.Signature:
    """That of :func:`make_agent`, with the algorithm's own options in place of ``**options``."""
    types = typing.get_type_hints(algorithm.Options)
    own = [
        inspect.Parameter(
            o.name, inspect.Parameter.KEYWORD_ONLY, default=o.default, annotation=types[o.name]
        )
        for o in fields(algorithm.Options)
    ]
    general = inspect.signature(make_agent, eval_str=True)
    given = list(general.parameters.values())[1:-1]
    return general.replace(parameters=[*given[:3], *own, *given[3:]])


def _document(algorithm: type[Algorithm[Any]]) -> str:
    """Docstrings of the algorithm and of the classes that declare its options."""
    bases = algorithm.Options.__mro__
    declared = [base for base in bases if vars(base).get("__annotations__") and base.__doc__]
    texts = [inspect.cleandoc(kind.__doc__ or "") for kind in (algorithm, *declared)]
    return "\n\n".join([*texts, "Other options are those of :func:`tacit.make_agent`."])


def hint(name: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """The known name that may have been meant, in words, if one is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _unknown(algorithm: type[Algorithm[Any]], option: str) -> InvalidArgument:
    taken = sorted([*_signature(algorithm).parameters][3:])
    near = hint(option, taken, cutoff=0.6)
    if option in ("bonus", "calibration", "regulariser"):
        near = " (tacit.papers has what a paper prints and proves)"
    return InvalidArgument(
        f"{algorithm.__name__} has no option {option!r}{near}; it takes {', '.join(taken)}"
    )
