"""The three ways in which mixture algorithms ask, of which ``statistic="auto"`` chooses one.

* ``"model"``: a regression on next states themselves, which serves every value function,
* ``"values"``: the papers' value-targeted regression, with the value function of the user's block,
* ``"counts"``: counts along the block's own policy (sparse worlds, deterministic policies).

All ask every user once, with the whole budget; sums over blocks are post-processing.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from tacit.mixture.estimate import Floats, PublicFeatures, input_scale
from tacit.mixture.model_sums import ModelSums
from tacit.mixture.path_counts import PathCounts
from tacit.mixture.value_sums import ValueSums
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy

if TYPE_CHECKING:
    from tacit.finite.policy import Policy
    from tacit.mixture.base import MixtureOptions
    from tacit.mixture.spec import MixtureSpec

Kind = Literal["model", "values", "counts"]

# A policy's transitions count as sparse below this many next states that inform on weights.
_SPARSE = 3.0


def choose_kind(
    options: MixtureOptions, privacy: Privacy, public: PublicFeatures, deterministic: bool
) -> tuple[Kind, str]:
    """What is asked, and why."""
    kinds: dict[str, Kind] = {"model": "model", "values": "values", "counts": "counts"}
    asked, theory = options.statistic, options.bonus == "theory"
    if asked == "counts" and not deterministic:
        raise InvalidArgument("statistic='counts' needs a deterministic policy: see LinOptVI")
    if asked == "counts" and theory:
        raise InvalidArgument("bonus='theory' is derived for statistic 'model' and 'values'")
    if options.calibration == "as_printed":
        if asked not in ("auto", "values"):
            raise InvalidArgument("as printed, regressions are value-targeted: 'values'")
        return "values", "as printed"
    if asked in kinds:
        return kinds[asked], "as asked"
    if privacy.needs_l1 and deterministic and not theory:
        return "counts", "of these only counts have a sensitivity in the 1-norm"
    if options.regulariser is not None:
        return "model", "a regulariser was given, which counts have no use for"
    informs = (np.abs(public.features).sum(axis=2) > 0).sum(axis=-1)
    sparse = float(informs[informs > 0].mean()) <= _SPARSE if informs.any() else True
    many = public.free > 2 * public.features.shape[0]
    if privacy.joint and deterministic and not theory and (sparse or many):
        reason = "few next states inform on the weights" if sparse else "there are many weights"
        return "counts", f"{reason}, and a policy reaches one action in each state"
    return "model", "every transition informs on all weights, for every value function"


class Questions:
    """Makes statistics from what is public.

    Args:
        spec: what is known of the world.
        public: the same, as models need it.
        pooled: whether steps are summed before the gate.
        papers: whether scales are the papers': fixed, whatever the values.
        printed: whether all blocks go through one counter, as printed.
    """

    def __init__(
        self,
        spec: MixtureSpec,
        public: PublicFeatures,
        *,
        pooled: bool,
        papers: bool,
        printed: bool,
    ) -> None:
        self._spec, self._public = spec, public
        self._pooled, self._papers, self._printed = pooled, papers, printed
        self._support = np.abs(spec.transition_features).sum(axis=2) > 0
        self._made: dict[bool, ModelSums] = {}

    @cached_property
    def reward_features(self) -> Floats | None:
        """Features of unknown rewards, in units of their largest norm."""
        features = self._spec.reward_features
        if self._spec.known_rewards is not None or features is None:
            return None
        scaled: Floats = features / max(float(np.sqrt((features**2).sum(axis=2).max())), 1e-12)
        return scaled

    @cached_property
    def reach(self) -> float:
        """The largest |x V| for |V| <= 1, for the theory; 0 in practice, where it is not used."""
        if not self._papers:
            return 0.0
        sums = np.abs(self._public.features).sum(axis=-1) * self._public.scale
        return float(np.sqrt((sums**2).sum(axis=-1).max()))

    def model(self, one_by_one: bool, clip: float) -> ModelSums:
        """Sums for every value function; clipped, in typical lengths, if users come one by one."""
        if one_by_one not in self._made:
            whole = self._model_sums(None)
            longest = clip * whole.typical
            if not self._pooled:
                longest *= math.sqrt(2.0)
            self._made[one_by_one] = self._model_sums(longest) if one_by_one else whole
        return self._made[one_by_one]

    def _model_sums(self, clip: float | None) -> ModelSums:
        return ModelSums(
            self._public.features,
            self._public.mean,
            self._support,
            self._spec.horizon,
            self.reward_features,
            pooled=self._pooled,
            clip=clip,
        )

    def values(self, values: Floats) -> tuple[ValueSums, Floats]:
        """Inputs and targets of these values, (H, S), and the scales of the targets, (H,)."""
        public = self._public
        middles = (values.max(axis=1) + values.min(axis=1)) / 2.0
        centred = values - middles[:, np.newaxis]
        halves = np.maximum(np.abs(centred).max(axis=1), 1e-9)
        base, inputs = public.apply(centred)
        inputs *= public.scale
        scales = np.array(
            [input_scale(x, half, self.reach) for x, half in zip(inputs, halves, strict=True)]
        )
        if self._printed:
            # One scale for all blocks, whose sums go through one counter.
            scales[:] = self._spec.horizon * self.reach
        # The largest target there can be, in units of the inputs' scale.
        possible = np.where(self._support, 1.0, 0.0)
        farthest = np.abs(centred[:, np.newaxis, np.newaxis] - base[..., np.newaxis]) * possible
        reaches = np.maximum(farthest.reshape(len(values), -1).max(axis=1) / scales, 1e-9)
        if self._printed:
            reaches[:] = 1.0 / self.reach
        elif self._papers:
            # One scale for all: noise whose size depends on earlier noise is not normal.
            reaches[:] = (1.0 + np.abs(public.mean).sum(axis=-1).max()) / max(self.reach, 1e-9)
        both = scales * reaches
        sums = ValueSums(
            inputs / scales[:, np.newaxis, np.newaxis, np.newaxis],
            base / both[:, np.newaxis, np.newaxis],
            centred / both[:, np.newaxis],
            self._support,
            self._spec.horizon,
            self.reward_features,
            # One counter over all blocks needs one sensitivity, whatever the values.
            own_values=not self._papers,
        )
        return sums, reaches

    def counts(self, policy: Policy) -> PathCounts:
        """Counts along a deterministic policy."""
        spec, actions = self._spec, policy.actions
        start = np.ones(spec.states) if spec.start is None else np.array(spec.start)
        assert actions is not None  # noqa: S101
        return PathCounts(
            self._support,
            np.abs(self._public.features).sum(axis=2) > 0,
            start > 0,
            spec.horizon,
            actions,
            version=policy.version,
            reward=0.0 if self.reward_features is None else 1.0,
        )
