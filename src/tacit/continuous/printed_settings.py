"""What the printed algorithm leaves open: of the authors' public code, and of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tacit.continuous.arguments import real
from tacit.continuous.network import hidden_layers
from tacit.privacy.arguments import flag, one_of, positive, whole_number
from tacit.privacy.errors import InvalidArgument


def _part_of_one(name: str, value: Any) -> float:
    number = real(name, value)
    if not 0.0 <= number <= 1.0:
        raise InvalidArgument(f"{name} must be in [0, 1], got {value!r}")
    return number


def _exploration(value: Any) -> tuple[float, float, float]:
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise InvalidArgument(f"exploration must be three numbers or None, got {value!r}")
    first, last = (_part_of_one("exploration", chance) for chance in value[:2])
    return first, last, positive("steps of exploration", value[2])


@dataclass(frozen=True)
class PrintedSettings:
    """What the algorithm leaves open, as the authors' public code has it.

    Attributes:
        hidden: units of the hidden layers.
        discount: of future rewards.
        beta: of the noise's kernel, exp(-beta |x - y|).
        replay: how many transitions are remembered.
        batch: how many of them, drawn without replacement, a gradient step is about.
        every: steps of users between two gradient steps.
        optimiser: ``"rmsprop"`` (PyTorch's, decay .99) or ``"sgd"``.
        rate: learning rate.
        loss: ``"huber"`` or ``"square"``.
        clamp: the largest entry of a gradient, or ``None``.
        exploration: the probability of a uniform action at first, in the end, and the number of
            steps in which what is between them falls by the factor e; or ``None`` for none.
        target_every: episodes between two copies to the network that makes the targets, which has
            paths of its own; or ``None`` if the trained network and its own paths make them.
        worth_nothing: whether the state after the last step of an episode counts as worth nothing.
    """

    hidden: tuple[int, ...] = (16, 16)
    discount: float = 0.999
    beta: float = 1.0
    replay: int = 10_000
    batch: int = 128
    every: int = 1
    optimiser: Literal["rmsprop", "sgd"] = "rmsprop"
    rate: float = 1e-2
    loss: Literal["huber", "square"] = "huber"
    clamp: float | None = 1.0
    exploration: tuple[float, float, float] | None = (0.9, 0.05, 200.0)
    target_every: int | None = 10
    worth_nothing: bool = True

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"hidden": hidden_layers(self.hidden)}
        for name in ("batch", "every", "replay"):
            checked[name] = whole_number(name, getattr(self, name))
        if self.target_every is not None:
            checked["target_every"] = whole_number("target_every", self.target_every)
        if checked["replay"] < checked["batch"]:
            raise InvalidArgument(
                f"replay must be at least batch, {self.batch!r}, got {self.replay!r}"
            )
        one_of("optimiser", self.optimiser, ("rmsprop", "sgd"))
        one_of("loss", self.loss, ("huber", "square"))
        for name in ("beta", "rate", "clamp"):
            if name != "clamp" or self.clamp is not None:
                checked[name] = positive(name, getattr(self, name))
        checked["discount"] = _part_of_one("discount", self.discount)
        if self.exploration is not None:
            checked["exploration"] = _exploration(self.exploration)
        checked["worth_nothing"] = flag("worth_nothing", self.worth_nothing)
        for name, value in checked.items():
            object.__setattr__(self, name, value)


SETTINGS: dict[str, PrintedSettings] = {
    "code": PrintedSettings(),
    # beta is B / (4 rate (k + 1)) for the paper's k = 2.3.
    "paper": PrintedSettings(
        beta=64 / (4 * 3e-4 * 3.3),
        replay=64,
        batch=64,
        every=64,
        optimiser="sgd",
        rate=3e-4,
        loss="square",
        clamp=None,
        exploration=None,
        target_every=None,
        worth_nothing=False,
    ),
}
"""Those of the authors' public code, and those that the paper states."""
