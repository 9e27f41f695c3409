"""Kinds of agents: what ``tacit.UCBVI(spec, users=..., privacy=...)`` calls.

Options are typed once: those of serving here (:class:`Serving`), an algorithm's own in its
``Options``. One that means nothing to an algorithm is refused.
"""

from __future__ import annotations

import inspect
import os
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from tacit.core.agent import Agent
from tacit.core.algorithm import Algorithm
from tacit.core.schedule import Schedule
from tacit.core.setting import Setting
from tacit.core.texts import hint
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy


@dataclass(frozen=True, kw_only=True)
class Serving:
    """How an agent serves its users: options of every agent.

    Attributes:
        schedule: when a policy is republished: ``"auto"`` (the algorithm's own), ``"every"``,
            ``"fixed:size=100"``, ``"geometric:growth=1.5,first=1"`` or a
            :class:`~tacit.core.schedule.Schedule`.
        seed: of ties and of the first, random policy; not of the noise.
        noise_seed: reproducible noise, for simulations only: it protects nobody.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`; a file that is
            missing is made, as a ledger of this run alone.
        autosave: file that is written before each publication, so that a killed run can go on.
    """

    schedule: str | Schedule = "auto"
    seed: int = 0
    noise_seed: int | None = None
    ledger: str | os.PathLike[str] | None = None
    autosave: str | os.PathLike[str] | None = None


_SERVING = {item.name for item in fields(Serving)}


class AgentKind:
    """Makes agents that learn by one algorithm, of which it has the class."""

    def __init__(self, algorithm: type[Algorithm[Any]]) -> None:
        self.algorithm = algorithm
        self.__name__ = self.__qualname__ = algorithm.__name__
        self.__module__ = algorithm.__module__
        texts = _option_texts(algorithm.Options) | _option_texts(Serving)
        lines = [f"    {n}: {text}" for n, text in texts.items() if n not in algorithm.refuses]
        document = inspect.cleandoc(algorithm.__doc__ or "").partition("\n>>>")[0].rstrip()
        self.__doc__ = "\n".join([document, "", "Options:", *lines])

    @property
    def name(self) -> str:
        """As a command line has it."""
        return self.algorithm.name

    @property
    def batch(self) -> bool:
        """Whether those it learns from are served by a fixed behaviour, and gain nothing."""
        return self.algorithm.batch

    def __call__(self, spec: Any, users: int, privacy: Privacy, **options: Any) -> Agent:
        """An agent for a world of which ``spec`` is known, and for so many users.

        ``options`` are those of serving (:class:`Serving`) and of the algorithm (its ``Options``).
        """
        self._check_names(options)
        serving = Serving(**{name: options[name] for name in options if name in _SERVING})
        own = self.algorithm.Options(**{n: options[n] for n in options if n not in _SERVING})
        setting = Setting(spec, users, privacy, serving.schedule, serving.seed)
        if privacy.devices_add and not privacy.local and not self.algorithm.distributed:
            raise InvalidArgument(
                f"{self.__name__} is not made for DistributedDP: ConcurrentPSRL and "
                "LinearPosterior are"
            )
        return Agent(
            self.algorithm(setting, own),
            noise_seed=serving.noise_seed,
            ledger=serving.ledger,
            autosave=serving.autosave,
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

    def _check_names(self, options: Mapping[str, Any]) -> None:
        refuses = self.algorithm.refuses
        own = {item.name for item in fields(self.algorithm.Options)}
        taken = sorted((own | _SERVING) - set(refuses))
        for name in options:
            if name in refuses:
                raise InvalidArgument(
                    f"{name} means nothing to {self.__name__}: {refuses[name]}; leave it out"
                )
            if name not in taken:
                near = hint(name, taken, cutoff=0.6)
                if name in ("bonus", "calibration", "regulariser"):
                    near = " (tacit.papers has what a paper prints and proves)"
                raise InvalidArgument(
                    f"{self.__name__} has no option {name!r}{near}; it takes {', '.join(taken)}"
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgentKind) and self.algorithm is other.algorithm

    def __hash__(self) -> int:
        return hash(self.algorithm)

    def __reduce__(self) -> tuple[Any, ...]:
        return AgentKind, (self.algorithm,)

    def __repr__(self) -> str:
        return f"<kind of agents {self.__name__}>"


def maker(found: Any) -> Any:
    """What makes agents, given an algorithm's class; anything else makes what it makes."""
    return _kind(found) if isinstance(found, type) and issubclass(found, Algorithm) else found


@cache
def _kind(algorithm: type[Algorithm[Any]]) -> AgentKind:
    return AgentKind(algorithm)


def _option_texts(options: type[Any]) -> dict[str, str]:
    """What a class of options and its bases say of each of them."""
    texts: dict[str, str] = {}
    for base in reversed(options.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        for found in re.finditer(r"^    (\w+): (.*(?:\n {5,}.*)*)", section, re.MULTILINE):
            texts[found[1]] = " ".join(found[2].split())
    return texts
