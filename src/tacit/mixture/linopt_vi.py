"""LinOptVI: optimistic value iteration for linear mixtures (Private-LinOpt-VI of Zhou)."""

from __future__ import annotations

from tacit.finite.policy import Policy
from tacit.mixture.agent import MixtureAgent


class LinOptVI(MixtureAgent):
    """Optimistic value iteration on a regularised regression.

    Idea: transitions are known features times unknown weights, so a regression on the sums of all
    users estimates the weights. Add a bonus for what is uncertain, by sampling or by privacy
    noise, and follow the best policy. The regression is written over a changing
    :class:`~tacit.mixture.regularisers.Regulariser`: a fixed one gives UCRL-VTR, noise and a shift
    give the private algorithm, and users can bring their own.

    Private statistics: by ``statistic``, :class:`~tacit.mixture.statistics.ModelSums`,
    :class:`~tacit.mixture.statistics.ValueSums` or :class:`~tacit.mixture.path_counts.PathCounts`.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: a user's sums are released once with the whole budget and policies
    are replanned at the releases of a schedule; sums are made with the value function of the
    user's own block; noise is calibrated jointly over all steps and sums; public knowledge of the
    weights (that they add up to 1, say) is used; unless ``bonus="theory"`` constants are practical.

    Cost: one release and H products of the features with a value function per block, whatever its
    number of users.

    Args:
        spec: sizes, horizon and features.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate.
        statistic: what is asked of users: ``"model"``, ``"values"``, ``"counts"`` (deterministic
            policies), or ``"auto"``, which says in ``why`` what it chose.
        stationary: one vector of weights for all steps (the world's own by default), or one each.
        growth: the number of users served grows by at most this factor from block to block.
        regulariser: see :mod:`tacit.mixture.regularisers`; chosen by bonus and privacy if ``None``.
        bonus: ``"practical"`` or ``"theory"``, for which the confidence sets are proven.
        scale: multiplies the practical bonus.
        failure: with which probability the theory's confidence sets may fail.
        calibration: ``"tight"``, or ``"as_printed"`` for the paper's own noise.
        schedule: when a policy is republished; see :mod:`tacit.core.schedule`.
        constants: the practical constants.
        seed: of ties and of the first, random policy; not of the noise.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.
    """

    name = "linopt_vi"

    def _plan(self) -> tuple[Policy, Policy]:
        optimistic, greedy = self._optimistic(self._model(), None)
        return self._best(optimistic), self._best(greedy)
