"""Kinds of agents: what ``tacit.UCBVI(spec, users=..., privacy=...)`` calls.

Options are typed once: those of serving here (:class:`Serving`), an algorithm's own in its
``Options``. One that means nothing to an algorithm is refused.
"""

from __future__ import annotations

import inspect
import os
import typing
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any

from tacit.core.agent import Agent
from tacit.core.algorithm import Algorithm
from tacit.core.problem import Problem, Schedule
from tacit.names.texts import hint
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Serving:
    """How an agent serves its users: options of every agent.

    Attributes:
        schedule: when a policy is republished: ``"auto"`` (the algorithm's own), ``"every"``,
            ``"fixed:size=100"``, ``"geometric:growth=1.5,first=1"`` or a
            :class:`~tacit.core.problem.Schedule`.
        seed: of ties and of the first, random policy; not of the noise.
        noise_seed: reproducible noise, for simulations only: it protects nobody.
        store: where everything is kept: a file, a URL of PostgreSQL, an opened
            :class:`tacit.Store`, or memory.
        name: of the run in its store; ``tacit.open(store, name)`` goes on with it.
    """

    schedule: str | Schedule = "auto"
    seed: int = 0
    noise_seed: int | None = None
    store: Store | str | os.PathLike[str] = ""
    name: str = "run"


_SERVING = {item.name for item in fields(Serving)}


class AgentKind:
    """Makes agents that learn by one algorithm, of which it has the class."""

    def __init__(self, algorithm: type[Algorithm[Any]]) -> None:
        self.algorithm = algorithm
        self.__name__ = self.__qualname__ = algorithm.__name__
        self.__module__ = algorithm.__module__
        # A dataclass without a docstring has its signature in that place.
        options = [base for base in algorithm.Options.__mro__ if is_dataclass(base)]
        own = [base for base in options if not str(base.__doc__).startswith(f"{base.__name__}(")]
        texts = [inspect.cleandoc(kind.__doc__ or "") for kind in (algorithm, *own, Serving)]
        self.__doc__ = "\n\n".join(text.partition("\n>>>")[0].rstrip() for text in texts)

    @property
    def name(self) -> str:
        """As a command line has it."""
        return self.algorithm.name

    @property
    def batch(self) -> bool:
        """Whether those it learns from are served by a fixed behaviour, and gain nothing."""
        return self.algorithm.offline

    def __call__(self, spec: Any, users: int, privacy: Privacy, **options: Any) -> Agent:
        """An agent for a world of which ``spec`` is known, and for so many users.

        ``options`` are those of serving (:class:`Serving`) and of the algorithm (its ``Options``).
        """
        for name in options.keys() - self.__signature__.parameters.keys():
            raise self._unknown(name)
        serving = Serving(**{name: options[name] for name in options if name in _SERVING})
        own = self.algorithm.Options(**{n: options[n] for n in options if n not in _SERVING})
        problem = Problem(spec, users, privacy, serving.schedule, serving.seed)
        if privacy.devices_add and not privacy.local and not self.algorithm.distributed:
            raise InvalidArgument(
                f"{self.__name__} is not made for DistributedDP: ConcurrentPSRL and "
                "LinearPosterior are"
            )
        return Agent(
            self.algorithm(problem, own),
            noise_seed=serving.noise_seed,
            store=serving.store,
            name=serving.name,
        )

    @property
    def __signature__(self) -> inspect.Signature:
        """Everything it takes, typed where it is declared."""
        keyword, given = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(name, given, annotation=kind)
            for name, kind in (("spec", Any), ("users", int), ("privacy", Privacy))
        ]
        for kind in (self.algorithm.Options, Serving):
            types = typing.get_type_hints(kind)
            parameters += [
                inspect.Parameter(
                    item.name, keyword, default=item.default, annotation=types[item.name]
                )
                for item in fields(kind)
                if item.name not in self.algorithm.refuses
            ]
        return inspect.Signature(parameters, return_annotation=Agent)

    def _unknown(self, name: str) -> InvalidArgument:
        if why := self.algorithm.refuses.get(name):
            return InvalidArgument(f"{name} means nothing to {self.__name__}: {why}; leave it out")
        taken = sorted([*self.__signature__.parameters][3:])
        near = hint(name, taken, cutoff=0.6)
        if name in ("bonus", "calibration", "regulariser"):
            near = " (tacit.papers has what a paper prints and proves)"
        return InvalidArgument(
            f"{self.__name__} has no option {name!r}{near}; it takes {', '.join(taken)}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return maker, (self.algorithm,)

    def __repr__(self) -> str:
        return f"<kind of agents {self.__name__}>"


def maker(found: Any) -> Any:
    """What makes agents, given an algorithm's class; anything else makes what it makes."""
    return _kind(found) if isinstance(found, type) and issubclass(found, Algorithm) else found


_kind = cache(AgentKind)
