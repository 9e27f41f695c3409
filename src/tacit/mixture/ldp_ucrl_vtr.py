"""LDP-UCRL-VTR: value-targeted regression on local reports, after Liao et al."""

from __future__ import annotations

from typing import Any

from tacit.mixture.linopt_vi import LinOptVI
from tacit.mixture.regularisers import NoiseShift
from tacit.mixture.spec import MixtureSpec
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import LocalDP, Privacy


class LDPUCRLVTR(LinOptVI):
    """The local baseline: value-targeted regression with a shift (Liao, He and Gu 2021).

    Idea: each device adds noise to the sums of its own value-targeted regression; the server adds
    reports, shifts the Gram matrix until it is positive definite for sure, and plans
    optimistically.

    Private statistics: :class:`~tacit.mixture.statistics.ValueSums`, reported once per device.

    Guarantee: that of the local model; see ``guarantee``.

    Deviations from the paper: reconstructed from its description; noise is calibrated exactly and
    jointly over all steps; policies are replanned at the releases of a schedule.

    Args:
        spec: sizes, horizon and features.
        users: how many users are declared.
        privacy: LocalDP, Gaussian.
        **options: as for :class:`~tacit.mixture.linopt_vi.LinOptVI`, without ``statistic`` and
            ``regulariser``, which are the paper's.
    """

    name = "ldp_ucrl_vtr"

    def __init__(self, spec: MixtureSpec, users: int, privacy: Privacy, **options: Any) -> None:
        if not isinstance(privacy, LocalDP):
            raise InvalidArgument(
                "LDPUCRLVTR is for local DP: give tacit.LocalDP(...), or privacy=local on the "
                f"command line, not {type(privacy).__name__}"
            )
        for name in ("statistic", "regulariser"):
            if options.get(name) is not None:
                raise InvalidArgument(f"LDPUCRLVTR has a {name} of its own: leave it out")
        options |= {"statistic": "values", "regulariser": NoiseShift()}
        super().__init__(spec, users, privacy, **options)
