"""LSVI-UCB that replaces its policy when enough was learnt, after Ngo et al., from memory."""

from __future__ import annotations

from tacit.linear.lsvi_ucb import LSVIUCB


class AdaptiveLSVIUCB(LSVIUCB):
    """After Ngo et al. 2022, from memory: private LSVI-UCB with adaptive batches.

    Idea: as :class:`~tacit.linear.lsvi_ucb.LSVIUCB`; sums are released often, and a policy is
    replaced only when the determinant of a precision matrix has doubled since the last time.

    Private statistics and guarantee: those of :class:`~tacit.linear.lsvi_ucb.LSVIUCB`. The test
    reads released matrices only, and the releases are fixed in advance: it costs nothing, however
    often noise makes it fire.

    Deviations from the paper: it is rebuilt from memory, not from the text. A user's sums are
    released once with the whole budget, where the paper keeps Gram matrices
    in a tree and releases all other sums again at every switch, of which it pays for as many as
    there can be; determinants are of Grams in units of their noise.
    """

    name = "adaptive_lsvi_ucb"
    after = "Ngo et al."
    default_switching = "determinant"
    default_growth = 1.15
