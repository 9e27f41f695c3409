"""LDP-UCRL-VTR: value-targeted regression on local reports, after Liao et al., from memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.mixture.base import MixtureOptions
from tacit.mixture.linopt_vi import LinOptVI
from tacit.mixture.regularisers import NoiseShift, Regulariser
from tacit.privacy.errors import InvalidArgument

_SHIFT = NoiseShift()


@dataclass(frozen=True, kw_only=True)
class LDPUCRLVTROptions(MixtureOptions):
    """Options of :class:`LDPUCRLVTR`: those of all mixture algorithms, but for the paper's own."""

    statistic: Literal["auto", "model", "values", "counts"] = "values"
    regulariser: Regulariser | None = _SHIFT


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
        "regulariser": "it has a regulariser of its own",
        "calibration": "it is reconstructed from a description that prints no noise",
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
