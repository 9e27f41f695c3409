"""How a privacy bug gets into Tacit itself: code of the real path is replaced for a while.

Agents that are made and served within the context have the bug; see
:mod:`research.planted.of_real_path`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self, TypeAlias
from unittest import mock

import numpy as np

from tacit.privacy.deviates import Ints
from tacit.privacy.noise import Noise

Patch: TypeAlias = tuple[Any, str, Any]
"""Whose attribute, its name, and what stands there instead."""


class InTacit:
    """A bug in Tacit's own code, while its context is entered."""

    def __init__(self) -> None:
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        for owner, name, wrong in self.patches():
            self._entered.enter_context(mock.patch.object(owner, name, wrong))
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def patches(self) -> Iterator[Patch]:
        """What is replaced."""
        raise NotImplementedError


def everywhere(name: str, right: Any, wrong: Any) -> Iterator[Patch]:
    """A function of Tacit in every module that has it by its name, also of those that test it."""
    packages = "tacit", "tests"
    for module in [m for key, m in sys.modules.items() if key.partition(".")[0] in packages]:
        if vars(module).get(name) is right:
            yield module, name, wrong


class RealSteps(InTacit):
    """Real exact noise is drawn by other code; that of simulations is not."""

    def patches(self) -> Iterator[Patch]:
        """The one method that draws it."""
        right = Noise.steps

        def steps(source: Noise, pure: bool, scale: float, count: int) -> Ints:
            if source.simulation:
                return right(source, pure, scale, count)
            return self.drawn(source, pure, scale, count)

        self._right = right
        yield Noise, "steps", steps

    def right(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """As it should be drawn."""
        return self._right(source, pure, scale, count)

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """As it is drawn."""
        raise NotImplementedError


def number_of_draw(source: Noise) -> int:
    """How often noise was drawn from a source before, by this count."""
    number: int = source.__dict__.setdefault("_draws", 0)
    source.__dict__["_draws"] = number + 1
    return number


class RealBits(InTacit):
    """The random bits of real noise come from somewhere else than the operating system."""

    def patches(self) -> Iterator[Patch]:
        """The one method that asks for them."""
        right = Noise._bytes

        def some(source: Noise, count: int) -> bytes:
            return right(source, count) if source.simulation else self.bits(source, count)

        yield Noise, "_bytes", some

    def bits(self, source: Noise, count: int) -> bytes:
        """So many bytes."""
        raise NotImplementedError


def generator(*seed: int) -> np.random.Generator:
    """A fast generator, as one would put before the operating system's."""
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(seed)))
