"""LSVI-UCB: optimistic least-squares value iteration on private sums."""

from __future__ import annotations

from tacit.linear.agent import LinearAgent


class LSVIUCB(LinearAgent):
    """Optimistic least-squares value iteration (Jin et al. 2020), also private.

    Idea: rewards and next values are linear in known features, so ridge regression on the sums of
    features predicts them for states and actions that nobody visited. Add a bonus for what is
    uncertain, by sampling or by privacy noise, and follow the best policy.

    Private statistics: by ``statistic``, :class:`~tacit.linear.statistics.FeatureSums`,
    :class:`~tacit.finite.visits.VisitCounts` along the block's policy, or
    :class:`~tacit.linear.statistics.TargetSums`, asked again with decaying weights.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: policies are replanned at the releases of a schedule; the bonus uses
    the noise's real size and, unless ``bonus="theory"``, practical constants; rewards are learnt
    where they are unknown.

    Cost: one release and H small regressions per block, whatever its number of users.

    Args:
        spec: sizes, horizon and features.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate.
        statistic: what is asked of users: ``"features"``, ``"counts"``, ``"targets"`` (joint
            only), or ``"auto"``, which says in ``why`` what it chose.
        stationary: one transition model for all steps (the world's own by default), or one each.
        growth: the number of users served grows by at most this factor from block to block.
        weights: ``"variance"`` weights steps by the variance of their next value, as LSVI-UCB++
            does; ``"none"`` does not; ``"auto"`` is the agent's own.
        switching: replan by ``"schedule"``, or only when the determinant of a precision matrix has
            doubled (``"determinant"``) or some direction's precision has (``"rayleigh"``).
        gram_noise: noise of equal size in all directions of the Frobenius norm, or i.i.d. on the
            upper ``"triangle"`` as in the papers.
        weight_bound: for the theory, a bound on the length of regression weights of values and
            rewards in [-1, 1]; sqrt(d) by default, as the papers assume.
        bonus: ``"practical"`` or ``"theory"``, for which optimism is proven.
        scale: multiplies the practical bonus.
        failure: with which probability the theory's bounds may fail.
        calibration: ``"tight"``, or ``"as_printed"`` for a paper's own noise, where there is one.
        schedule: when a policy is republished; see :mod:`tacit.core.schedule`.
        constants: the practical constants.
        seed: of ties and of the first, random policy; not of the noise.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.
    """

    name = "lsvi_ucb"
