"""LDP-UCRL-VTR: value-targeted regression on local reports, after Liao et al., from memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tacit.core.algorithm import Floats
from tacit.mixture.base import MixtureOptions
from tacit.mixture.linopt_vi import LinOptVI
from tacit.numerics.ridge import operator_bound, positive_part
from tacit.privacy.errors import InvalidArgument

# With which probability a shift may be too small.
_FAILURE = 0.1


@dataclass(frozen=True, kw_only=True)
class LDPUCRLVTROptions(MixtureOptions):
    """Options of :class:`LDPUCRLVTR`: those of all mixture algorithms, but for the paper's own."""

    statistic: Literal["auto", "model", "values", "counts"] = "values"


class LDPUCRLVTR(LinOptVI):
    """After Liao, He and Gu 2021, from descriptions: value-targeted regression with a shift.

    Idea: each device adds noise to the sums of its own value-targeted regression; the server adds
    reports, shifts the Gram matrix until it is positive definite for sure, and plans
    optimistically, as :class:`~tacit.mixture.linopt_vi.LinOptVI` does.

    Private statistics: :class:`~tacit.mixture.value_sums.ValueSums`, reported once per device.

    Guarantee: that of the local model; see ``guarantee``.

    Deviations from the paper: reconstructed from its description; noise is calibrated exactly and
    jointly over all steps; policies are replanned at the releases of a schedule.
    """

    name = "ldp_ucrl_vtr"
    after = "Liao et al."
    Options = LDPUCRLVTROptions
    refuses: ClassVar = {
        "statistic": "it has a statistic of its own",
        "ledger": "only JointDP has secrets",
        "autosave": "only JointDP has secrets",
    }

    def _check(self) -> None:
        if not self.privacy.local:
            raise InvalidArgument(
                "LDPUCRLVTR is for local DP: give tacit.LocalDP(...), or privacy=local on the "
                f"command line, not {type(self.privacy).__name__}"
            )
        super()._check()

    def regularised(self, gram: Floats, noise: float, rows: int) -> Floats:
        """G + N + 2 l I with |N| <= l, all Gram matrices and releases together."""
        share = _FAILURE / (16.0 * rows * self.schedule.releases)
        level = max(1.0, operator_bound(noise, len(gram), share))
        # In the improbable case that noise is larger, still something that can be inverted.
        shift = level * np.eye(len(gram))
        return positive_part(gram + shift) + shift
