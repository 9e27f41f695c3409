"""What linear-quadratic agents share: what they ask, what they believe, and safe gains.

Every user is in one block, which is asked once with the whole budget. Users' controls have noise
of known size, without which a good controller would never learn what other controls do. The agent
keeps a posterior of the model (:mod:`tacit.lq.estimate`), and from it chooses what the next block
is asked:

* residuals against the posterior mean, cut where the posterior and the bound of the noise end,
* in units of inputs in which directions that are seldom visited weigh more,
* with the weight of residuals that leaves least noise.

Published gains pass a gate: they must beat zero control in nine of ten models that the posterior
holds possible, widened by a margin. Until some do, nothing but noise is applied.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.learner import Arrays, Bonus, Calibration, Learner, below
from tacit.core.schedule import Schedule, growing
from tacit.lq.energy import EnergyHistogram
from tacit.lq.estimate import Evidence, Posterior, Regression
from tacit.lq.policy import GainPolicy
from tacit.lq.riccati import cost_gradient, expected_costs
from tacit.lq.spec import LQSpec
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.arguments import instance_of
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import NonPrivate, Privacy, needs_l1
from tacit.privacy.sizing import release_noise, users_above_noise
from tacit.privacy.statistic import Statistic

Floats = NDArray[np.float64]

# Blocks of more users are simulated part by part.
_IN_MEMORY = 1 << 15
# A tau where nothing moves.
_LEAST = 1e-9
# Without privacy a clip would only lose data.
_UNCLIPPED = 1e3


@dataclass(frozen=True)
class Constants:
    """The practical agents' constants, chosen on other seeds of the worlds than are reported.

    Attributes:
        first: users of the first block, times (n + d) / mu.
        growth: the number of users served grows by at most this factor from block to block.
        control_noise: energy of the first users' controls, over the whole episode and divided by
            sqrt(d), in that of first states. Noise adds up over an episode, so with a fixed size
            per step it would cost the more the longer episodes are.
        noise_price: what the noise of later users may cost, in costs of zero control;
        largest_noise: and how large it may be, in first noises, per root of the horizon.
        explore: it may cost so many times what the gains are expected to lack of the optimum.
        prior: standard deviation of all entries of (A, B) together, in norm bounds.
        model_error: see :class:`~tacit.lq.estimate.Regression`.
        cap: where residuals are cut, in standard deviations of the posterior;
        first_cap: the same for the first block, in those of the prior.
        steps: how many steps of the first users count.
        shape: inputs are scaled by this negative power of the Gram.
        gram_share: how much the noise of the Gram counts in the choice of the weight.
        surprise: what was known is doubted when a block is so many standard deviations off.
        samples: models that gains are tried on.
        caution: how much wider than the posterior they are.
        level: under ``level="private"``, the share of users whose trajectories the first clip
            leaves whole.
        confidence: in which share of them gains must beat zero control;
        worst: and how much more than it they may cost in any of them.
    """

    first: float = 7.0
    growth: float = 1.3
    control_noise: float = 3.0
    noise_price: float = 0.5
    largest_noise: float = 0.3
    explore: float = 1.0
    prior: float = 0.6
    model_error: float = 0.1
    cap: float = 0.8
    first_cap: float = 1.2
    steps: float = 4.0
    shape: float = 0.3
    gram_share: float = 0.3
    surprise: float = 1.5
    samples: int = 128
    caution: float = 1.4
    confidence: float = 0.9
    worst: float = 2.0
    level: float = 0.9


class LQAgent(Learner[Statistic, GainPolicy]):
    """A learner for linear-quadratic control; see its subclasses.

    Args:
        spec: what is public of the world.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate, with Gaussian noise.
        clip: how a user's trajectory is bounded; see
            :class:`~tacit.lq.statistics.TrajectorySums`. The posterior is honest for
            ``"predictable"`` only; the others are for comparison.
        level: how the first clip level is chosen. ``"public"``: so that a few steps of a user
            count, by what is known of first states. ``"private"``: from a private histogram of
            energies of the first block, whose users are asked nothing else. With the predictable
            clip, which biases nothing at any level, these users are better asked the real thing.
        constants: of the practical recipe.

    Others: see :class:`tacit.core.learner.Learner`.
    """

    spec: LQSpec

    def __init__(
        self,
        spec: LQSpec,
        users: int,
        privacy: Privacy,
        *,
        clip: Literal["predictable", "trajectory"] = "predictable",
        level: Literal["public", "private"] = "public",
        bonus: Bonus = "practical",
        scale: float = 1.0,
        failure: float = 0.1,
        calibration: Calibration = "tight",
        schedule: str | Schedule = "auto",
        constants: Constants | None = None,
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(spec, LQSpec):
            raise InvalidArgument(
                "this agent is for linear-quadratic control: spec must be an LQSpec, as of "
                f"random_system or dosing, got {type(spec).__name__}"
            )
        if clip not in ("predictable", "trajectory"):
            raise InvalidArgument(f"clip must be predictable or trajectory, got {clip!r}")
        if level not in ("public", "private"):
            raise InvalidArgument(f"level must be public or private, got {level!r}")
        self.clip: Literal["predictable", "trajectory"] = clip
        self.level = level
        self._energy: float | None = None
        self.constants = Constants() if constants is None else constants
        instance_of("constants", self.constants, Constants)
        p, n = spec.states + spec.controls, spec.states
        self._regression = Regression(
            spec,
            self.constants.prior * spec.norm_bound / math.sqrt(n * p),
            self.constants.model_error,
        )
        self._known = self._regression.prior
        self._evidence: list[Evidence] = []
        self._trust: list[float] = []
        self._asked: Statistic | None = None
        super().__init__(
            spec,
            users,
            privacy,
            bonus=bonus,
            scale=scale,
            failure=failure,
            calibration=calibration,
            schedule=schedule,
            counter="auto",
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    # What is public.

    @property
    def uncertainty(self) -> Posterior | None:
        """What the releases tell of the model: a mean, and a covariance of its columns.

        It counts the noise of the world and of privacy, and starts from a prior of independent
        normal entries. It is measured, not proven: with the predictable clip and true public bounds
        the squared distance of the truth is on average within a factor of 2 of what it should be,
        from the first thousand users to a million (docs/lq.md has the table).
        """
        return self._known

    @property
    def why(self) -> str:
        """What was chosen for this world, budget and length, in words."""
        return (
            f"{self.clip} clip, {self.level} first level; {self.schedule.releases} releases "
            f"({self.schedule.name}); control noise {self._policy.noise:.3g} now"
        )

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in one sum with weight 1 of the current block."""
        return release_noise(self._statistic(), self.privacy, self._block_size)

    @property
    def form(self) -> Literal["episodes", "streamed"]:
        """Part by part, where blocks are large."""
        return "streamed" if self._block_size > _IN_MEMORY else "episodes"

    @property
    def _block_size(self) -> int:
        return self.schedule.blocks[min(self.releases, self.schedule.releases - 1)]

    # Choices made before the first user comes.

    def _check_options(self, schedule: str | Schedule) -> None:
        super()._check_options(schedule)
        if needs_l1(self.privacy):
            raise InvalidArgument(
                "second moments need Gaussian noise: delta > 0, and the Gaussian mechanism under "
                f"LocalDP; privacy is {self.privacy!r}"
            )

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        if not isinstance(schedule, str) or schedule != "auto":
            return Schedule.of(schedule, self.users)
        blocks = growing(self.users, self._smallest_block, self.constants.growth)
        return Schedule("auto", blocks)

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs for residuals to become shorter by it."""
        p = self.spec.states + self.spec.controls
        if isinstance(self.privacy, NonPrivate):
            return max(8, p)
        one = TrajectorySums(
            self.spec.states, self.spec.controls, self.spec.horizon, tau=math.sqrt(0.5)
        )
        return users_above_noise(one, self.privacy, self.constants.first * p)

    def _first_policy(self) -> GainPolicy:
        spec = self.spec
        return GainPolicy(
            np.zeros((spec.horizon, spec.controls, spec.states)), self._first_noise, version=0
        )

    def _first_greedy(self) -> GainPolicy:
        # Noise is for those who are served; nobody is better off with it.
        return replace(self._policy, noise=0.0)

    @property
    def _first_noise(self) -> float:
        """Of each coordinate of the first users' controls."""
        return self._practical_noise

    @cached_property
    def _practical_noise(self) -> float:
        spec = self.spec
        energy = float(np.trace(spec.start_moment)) or spec.noise_bound**2 or 1.0
        share = self.constants.control_noise / (spec.horizon * math.sqrt(spec.controls))
        return math.sqrt(share * energy)

    # What is asked.

    def _statistic(self) -> Statistic:
        if self._asked is None:
            warming_up = self.level == "private" and self._energy is None
            self._asked = self._histogram() if warming_up else self._make_statistic()
        return self._asked

    def _histogram(self) -> EnergyHistogram:
        """Of the energies of users without control: bins around those of a single step."""
        spec = self.spec
        return EnergyHistogram(
            spec.states, spec.controls, spec.horizon, least=0.1 * self._step_energy
        )

    @property
    def _step_energy(self) -> float:
        """What is known of a first step: E|x|^2, and the control noise."""
        noise = self.spec.controls * self._first_noise**2
        return max(float(np.trace(self.spec.start_moment)) + noise, _LEAST)

    def _make_statistic(self) -> TrajectorySums:
        """The statistic for the current block: everything it is made of was released before."""
        spec, chosen = self.spec, self.constants
        n, d, H = spec.states, spec.controls, spec.horizon
        p = n + d
        known, policy = self._known, self._policy
        root = np.asarray(np.linalg.cholesky(known.covariance), dtype=np.float64)
        cap = chosen.cap if self._evidence else chosen.first_cap
        spread = cap * math.sqrt(n) * root
        plain = np.eye(p)
        if self._evidence:
            steps = float(H)
            gram, _ = self._regression.expected(
                known, policy.gains, policy.noise, plain, spread, 1.0, math.inf
            )
            gram = gram / H
        else:
            # Only of first states is it known where they are.
            steps = min(float(H), chosen.steps)
            if self._energy is not None:
                steps = min(float(H), max(1.0, self._energy / self._step_energy))
            gram = np.zeros((p, p))
            gram[:n, :n] = spec.start_moment
            gram[n:, n:] = policy.noise**2 * np.eye(d)
        inputs = scaled_inputs(gram, chosen.shape)
        of_inputs, of_caps = self._energies(gram, inputs, spread)
        back = np.linalg.inv(inputs)
        share = chosen.gram_share * 0.5 * float(np.trace(back @ known.covariance @ back.T))
        weight = best_weight(of_inputs, of_caps, share)
        tau = max(steps * (of_inputs + 0.5 * weight**2 * of_caps), _LEAST)
        if isinstance(self.privacy, NonPrivate):
            tau *= _UNCLIPPED
        return TrajectorySums(
            n,
            d,
            H,
            clip=self.clip,
            tau=tau,
            weight=weight,
            centre=known.mean,
            inputs=inputs,
            floor=spec.noise_bound,
            spread=spread,
        )

    def _energies(self, gram: Floats, inputs: Floats, spread: Floats) -> tuple[float, float]:
        """Of an average step: |p|^2, and the square of the cap."""
        if self._evidence:
            policy = self._policy
            _, energies = self._regression.expected(
                self._known, policy.gains, policy.noise, inputs, spread, 1.0, math.inf
            )
            of_inputs, of_caps = energies.mean(axis=0)
            return float(of_inputs), float(of_caps)
        reach = float(np.trace(spread.T @ gram @ spread))
        cap = self.spec.noise_bound + math.sqrt(reach)
        return float(np.trace(inputs @ gram @ inputs.T)), cap**2

    # What is known.

    def _absorb(self, release: Release, statistic: Statistic, users: int) -> None:
        before, policy = self._known, self._policy
        if isinstance(statistic, EnergyHistogram):
            noise = float(np.max(release.std["users"]))
            self._energy = statistic.level(release["users"], noise, self.constants.level)
            return
        assert isinstance(statistic, TrajectorySums)  # noqa: S101
        assert statistic.tau is not None  # noqa: S101
        block = Evidence(
            gram=release["gram"],
            cross=release["cross"],
            gram_std=float(np.max(release.std["gram"])),
            cross_std=float(np.max(release.std["cross"])),
            users=users,
            centre=statistic.centre,
            inputs=statistic.inputs,
            spread=statistic.spread,
            floor=statistic.floor,
            weight=statistic.weight,
            tau=statistic.tau,
            gains=policy.gains,
            control_noise=policy.noise,
        )
        if self._evidence:
            surprise = self._regression.surprise(block, before)
            usual = 1.0 + self.constants.surprise * math.sqrt(2.0 / before.mean.size)
            if surprise > usual:
                self._trust = [trust / surprise for trust in self._trust]
        self._evidence.append(block)
        self._trust.append(1.0)
        self._known = self._regression.posterior(self._evidence, self._trust, before)

    def _advance(self, users: int) -> None:
        super()._advance(users)
        self._asked = None

    # Gains.

    def _control_noise(self, gains: Floats) -> float:
        """For the next users, less and less.

        Noise costs its variance times a constant. What gains lack of the optimum decreases as more
        is known, which is the sooner the more noise there is. Spending about as much on noise as
        is lacking has the right rates: with N users the lack is as 1 / (N variance) where data are
        scarce, and as its square where the noise of privacy is what counts, so the variance
        decreases as N^(-1/2) and N^(-2/3), as the least sum of both does.
        """
        most = self._most_noise()
        if not gains.any():
            return most
        spec, public = self.spec, self._public
        one = expected_costs(
            gains[np.newaxis].repeat(2, 0),
            self._known.mean[np.newaxis],
            np.array([0.0, 1.0]),
            *public,
        )
        models = self._models()
        costs = expected_costs(gains[np.newaxis], models, 0.0, *public)[0]
        best = [
            cost_gradient(model, spec.state_cost, spec.control_cost, spec.horizon, *public[:2])[0]
            for model in models
        ]
        lack, price = float(np.mean(costs) - np.mean(best)), float(one[1, 0] - one[0, 0])
        if not (math.isfinite(lack) and math.isfinite(price)):
            return most
        return min(most, math.sqrt(self.constants.explore * max(lack, 0.0) / price))

    def _most_noise(self) -> float:
        """More than the first users had, where it is known to cost little in comparison."""
        if not self._evidence or not self._first_noise:
            return self._first_noise
        spec = self.spec
        still = np.zeros((2, spec.horizon, spec.controls, spec.states))
        costs = expected_costs(still, self._models(), np.array([0.0, 1.0]), *self._public)
        ratios = costs[1] / np.maximum(costs[0], 1e-300)
        price = float(np.median(ratios)) - 1.0
        largest = self.constants.largest_noise * self._first_noise * math.sqrt(spec.horizon)
        if not (math.isfinite(price) and price > 0.0):
            return self._first_noise
        bearable = min(largest, math.sqrt(self.constants.noise_price / price))
        return max(self._first_noise, bearable)

    @property
    def _public(self) -> tuple[Floats, Floats, Floats, Floats]:
        """What costs depend on besides gains and the model."""
        spec = self.spec
        return spec.start_moment, spec.noise_covariance, spec.state_cost, spec.control_cost

    @property
    def _caution(self) -> float:
        """How much wider than the posterior the models are that gains are tried on."""
        return self.constants.caution

    def _models(self) -> Floats:
        """Models that are possible by what is known, and a margin, within the public bound."""
        models = self._known.draw(self._rng, self.constants.samples, self._caution)
        norms = np.linalg.norm(models, axis=(1, 2))
        models *= np.minimum(1.0, self.spec.norm_bound / norms)[:, np.newaxis, np.newaxis]
        return models

    def _safe(self, candidates: list[Floats]) -> tuple[Floats, Floats]:
        """Average costs of gains over possible models, in units of zero control, and the gains.

        Infinite where the gate is closed. The first candidate is zero control: it is always open.
        """
        chosen, models = self.constants, self._models()
        gains = np.array([np.zeros_like(candidates[0]), *candidates])
        costs = expected_costs(gains, models, 0.0, *self._public)
        # Where zero control exceeds all numbers, nothing is known of what is better.
        ratios = np.where(np.isfinite(costs), costs, np.inf) / np.maximum(costs[0], 1e-300)
        ratios[np.isnan(ratios)] = np.inf
        shut = np.quantile(ratios, chosen.confidence, axis=1) > 1.0
        shut |= ratios.max(axis=1) > chosen.worst
        shut[0] = False
        return np.where(shut, np.inf, ratios.mean(axis=1)), gains

    def _greedy_candidates(self) -> list[Floats]:
        """Gains for the posterior mean, less of them, cautious ones, and those of the last time."""
        known = self._known
        certain = self._gains(known.mean, np.zeros_like(known.covariance))
        cautious = self._gains(known.mean, known.covariance)
        shares = (0.125, 0.25, 0.5, 0.75, 1.0)
        return [
            *(share * certain for share in shares),
            cautious,
            0.5 * cautious,
            self._greedy.gains,
        ]

    def _gains(self, theta: Floats, covariance: Floats) -> Floats:
        """Optimal gains of a model, within the public bound."""
        from tacit.lq.sum_loops import cautious_gains

        spec = self.spec
        gains = np.empty((spec.horizon, spec.controls, spec.states))
        cautious_gains(theta, covariance, spec.state_cost, spec.control_cost, gains)
        return bounded_gains(gains, spec.gain_bound)

    def _policies(self, serving: Floats, greedy: Floats) -> tuple[GainPolicy, GainPolicy]:
        noise = self._control_noise(serving) if self._first_noise else 0.0
        return (
            GainPolicy(serving, noise, self.releases),
            GainPolicy(greedy, 0.0, self.releases),
        )

    # Save and resume.

    def _policy_arrays(self, policy: GainPolicy) -> Arrays:
        return policy.arrays()

    def _policy_of(self, arrays: Arrays, version: int) -> GainPolicy:
        return GainPolicy.from_arrays(arrays, version)

    def _identity(self) -> dict[str, Any]:
        own = {"clip": self.clip, "level": self.level, "constants": repr(self.constants)}
        return super()._identity() | own

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        arrays: Arrays = {"mean": self._known.mean, "covariance": self._known.covariance}
        for number, block in enumerate(self._evidence):
            arrays |= {f"block{number}/{name}": array for name, array in block.arrays().items()}
        return {"trust": self._trust, "energy": self._energy}, arrays

    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        self._trust = list(meta["trust"])
        self._energy = meta["energy"]
        self._evidence = [
            Evidence.from_arrays(below(arrays, f"block{number}/"))
            for number in range(len(self._trust))
        ]
        self._known = replace(self._known, mean=arrays["mean"], covariance=arrays["covariance"])
        self._asked = None


def bounded_gains(gains: Floats, bound: float) -> Floats:
    """Gains whose spectral norm is at most a bound, step by step; zero where they are no numbers.

    >>> bounded_gains(np.array([[[3.0, 4.0]]]), bound=1.0).round(12).tolist()
    [[[0.6, 0.8]]]
    """
    finite = np.where(np.isfinite(gains).all(axis=(1, 2), keepdims=True), gains, 0.0)
    norms = np.linalg.norm(finite, 2, axis=(1, 2))[:, np.newaxis, np.newaxis]
    bounded: Floats = finite * np.minimum(1.0, bound / np.maximum(norms, 1e-300))
    return bounded


def scaled_inputs(gram: Floats, shape: float) -> Floats:
    """Gram^-shape, scaled so that inputs have the same energy as before.

    The error of a direction with Gram g, in units m of inputs, is as noise / (m g), while the noise
    is as the energy, the sum of m^2 g. Were all directions equally important m = g^(-3/4) would be
    best. Those that are seldom visited matter less for costs.
    """
    values, basis = np.linalg.eigh(0.5 * (gram + gram.T))
    if values.max() <= 0.0:
        return np.eye(len(gram))
    values = np.maximum(values, 1e-3 * values.max())
    units = values**-shape
    units *= math.sqrt(float(np.trace(gram)) / float((units**2 * values).sum()))
    return np.ascontiguousarray((basis * units) @ basis.T)


def best_weight(of_inputs: float, of_caps: float, share: float) -> float:
    """The weight of residuals that leaves the least noise in the regression.

    Noise is as tau, the energy of inputs and weighted caps; that of the cross sums is divided by
    the weight, that of the Gram counts by its share.
    """
    weights = np.exp(np.linspace(-3.0, 5.0, 81))
    noise = (of_inputs + 0.5 * weights**2 * of_caps) * np.sqrt(weights**-2.0 + share)
    return float(weights[int(np.argmin(noise))])
