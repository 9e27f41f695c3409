r"""Chowdhury and Zhou: Differentially Private Regret Minimization in Episodic MDPs.

Sayak Ray Chowdhury and Xingyu Zhou, AAAI 2022 (arXiv 2021). PRIVATE-UCB-PO (Algorithm 1) and
PRIVATE-UCB-VI (Algorithm 2) with any PRIVATIZER: the paper's CENTRAL-PRIVATIZER (Laplace noise on
binary trees), its LOCAL-PRIVATIZER (Laplace noise on every device), the two alternatives of its
Remark 7 (Gaussian and Bernoulli noise on the device), or your own.

The paper minimises costs; a world has rewards. The cost of a step is 1 - reward, so that regret is
the same. K episodes, H steps, S states, A actions, T = KH.

A simulation, whose loop sees raw trajectories and plans with what its PRIVATIZER gives it.
``docs/papers/chowdhury_tabular_2021.md`` has the paper's lines beside the code's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
from scipy.special import expit

import tacit.papers.finite_loops as loops
from tacit.numerics.compiled import Floats, Ints, compiled, inner
from tacit.papers.counters import grow_tree, laplace_width, normal_width, tree_nodes
from tacit.papers.result import NO_NOISE, PaperResult, Proof, failure_of, gaussian_proof
from tacit.privacy.arguments import checked_number, flag, one_of, positive, whole_number
from tacit.privacy.budget import Budget
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise
from tacit.tabular.policy import Policy

if TYPE_CHECKING:
    from tacit.tabular.world import FiniteWorld

ERRATA = (
    "Lemmas 3 and 4 print eps' = 3H log K / eps and 3H / eps; it is the inverse of the noise scale",
    "V and Q print a'_h for a_h'",
)
"""Misprints without whose correction there is nothing to run; ``printed=True`` has these too."""


@dataclass(frozen=True)
class Sizes:
    """What a PRIVATIZER is made for."""

    episodes: int  # K
    horizon: int  # H
    states: int  # S
    actions: int  # A
    epsilon: float
    delta: float  # of (epsilon, delta)-privacy; 0 for Laplace and Bernoulli noise
    failure: float  # delta of the paper: the probability with which precision may fail
    printed: bool
    noise: Noise = field(repr=False)

    @property
    def pairs(self) -> int:
        """H S A, entries of N and of C."""
        return self.horizon * self.states * self.actions

    @property
    def cells(self) -> int:
        """H (2 S A + S^2 A), entries of all counts."""
        return self.pairs * (2 + self.states)

    @property
    def share(self) -> float:
        """Probability of failure per entry and episode, a third of it in all."""
        return self.failure / 3.0 / (self.cells * self.episodes)


class Privatizer(Protocol):
    """The paper's PRIVATIZER (Assumption 1): bring your own, made from :class:`Sizes`.

    Attributes:
        E1: precision of N and C in episodes 1 to K, (K,): no entry is farther from the true count,
            but for a probability of ``failure``.
        E2: the same of M.
        proof: what is proven about its privacy.
    """

    E1: Floats
    E2: Floats
    proof: Proof

    def receive(self, states: Ints, actions: Ints, costs: Floats) -> tuple[Floats, Floats, Floats]:
        """The private counts after one more user: N, C (H, S, A) and M (H, S, A, S).

        Her states are (H + 1,), actions and costs (H,).
        """


@dataclass(frozen=True, eq=False)
class Additive:
    """A PRIVATIZER of the paper: independent noise of one law, on nodes of trees or on reports.

    ``scale`` is its size. A ``"bernoulli"`` report is one bit, 1 with probability ``scale`` where
    the entry is 0, 1 - ``scale`` where it is 1, linear in between, and added up without bias.
    """

    sizes: Sizes
    law: Literal["laplace", "gaussian", "bernoulli", "none"]
    tree: bool
    scale: float
    E1: Floats
    E2: Floats
    proof: Proof

    def units(self, episodes: int) -> Floats:
        """What the noise of the next episodes is made of, (episodes, cells)."""
        shape, noise = (episodes, self.sizes.cells), self.sizes.noise
        if self.law == "laplace":
            return noise.laplace_sum(1, shape)  # the same law as laplace, drawn faster
        if self.law == "gaussian":
            return noise.normal(shape)
        return noise.uniform(shape) if self.law == "bernoulli" else np.zeros(shape)


Make = Callable[[Sizes], Privatizer | Additive]


# Section 5.1: the CENTRAL-PRIVATIZER.


def central(sizes: Sizes) -> Additive:
    """A binary tree for every count, with Laplace noise on its nodes (Lemma 3).

    As printed (inverse put right, log of base 2): Lap(3 H log K / eps) on every node. One user is
    in m = ceil(log2 K) nodes; replaced, she moves N, C and M by 2 in L1 at every step, 6H in all
    (6H - 3 with a fixed first state), so 6 H m / scale is proven. Corrected: Lap(6 H m / eps), or
    with delta > 0 normal noise of standard deviation sqrt(6 H m) / mu, since the squared L2
    distance is 6H too; precision from Chernoff's bound, or from the normal quantile.
    """
    K, H = sizes.episodes, sizes.horizon
    if K < 2:
        raise InvalidArgument(f"episodes must be at least 2 for a tree, got {K}")
    nodes = tree_nodes(K - 1)  # pi^1 to pi^K need the prefixes up to K - 1
    if sizes.printed:
        _refuse_delta(sizes, "the CENTRAL-PRIVATIZER is printed with Laplace noise")
        scale = 3.0 * H * math.log2(K) / sizes.epsilon
        E1, E2 = 3.0 * H / sizes.epsilon * np.sqrt(8.0 * math.log2(K) ** 3 * lemma_logs(sizes))
        proof = _laplace_proof(sizes, "joint", 6.0 * H * nodes / scale, nodes)
        E1, E2 = (np.broadcast_to(E, (K,)) for E in (E1, E2))
        return Additive(sizes, "laplace", True, scale, E1, E2, proof)
    if sizes.delta > 0.0:
        mu = Budget(sizes.epsilon, sizes.delta).mu
        scale = math.sqrt(6.0 * H * nodes) / mu
        E = np.broadcast_to(scale * math.sqrt(nodes) * normal_width(sizes.share), (K,))
        claim = f"{sizes.epsilon:g}-JDP with Laplace noise"
        how = "binary tree, Gaussian noise", f"squared L2 distance 6H, {nodes} nodes per user"
        proof = gaussian_proof(mu, sizes.delta, K - 1, claim, *how, epsilon=sizes.epsilon)
        return Additive(sizes, "gaussian", True, scale, E, E, proof)
    scale = 6.0 * H * nodes / sizes.epsilon
    E = np.broadcast_to(scale * laplace_width(float(nodes), sizes.share), (K,))
    proof = _laplace_proof(sizes, "joint", sizes.epsilon, nodes)
    return Additive(sizes, "laplace", True, scale, E, E, proof)


# Section 5.2: the LOCAL-PRIVATIZERs.


def local(sizes: Sizes) -> Additive:
    """Laplace noise on every entry of a device's report (Lemma 4).

    As printed: Lap(3H / eps), which is 2 eps, since local privacy compares any two trajectories.
    Corrected: Lap(6H / eps), with a precision that grows with the reports so far.
    """
    K, H = sizes.episodes, sizes.horizon
    _refuse_delta(sizes, "Laplace noise is pure")
    if sizes.printed:
        scale = 3.0 * H / sizes.epsilon
        E1, E2 = scale * np.sqrt(8.0 * K * np.outer(lemma_logs(sizes), np.ones(K)))
    else:
        scale = 6.0 * H / sizes.epsilon
        E1 = E2 = scale * _grown(K, lambda m: laplace_width(m, sizes.share))
    proof = _laplace_proof(sizes, "local", 6.0 * H / scale, 1)
    return Additive(sizes, "laplace", False, scale, E1, E2, proof)


def local_gaussian(sizes: Sizes) -> Additive:
    """Gaussian noise on every entry of a device's report (Remark 7, which prints no scale).

    ``printed`` takes the paper's own count of what a user changes, 3H, for the squared L2 distance;
    corrected it is 6H.
    """
    K, H = sizes.episodes, sizes.horizon
    mu = Budget(sizes.epsilon, sizes.delta).mu
    scale = math.sqrt((3.0 if sizes.printed else 6.0) * H) / mu
    width = normal_width(sizes.share)
    E = scale * width * (math.sqrt(K) * np.ones(K) if sizes.printed else _grown(K, np.sqrt))
    mu, epsilon = (math.sqrt(2.0) * mu, None) if sizes.printed else (mu, sizes.epsilon)
    claim = f"({sizes.epsilon:g}, {sizes.delta:g})-LDP"
    how = f"{_REPORTS}, Gaussian noise", "the squared L2 distance of two trajectories is 6H"
    proof = gaussian_proof(mu, sizes.delta, 1, claim, *how, model="local", epsilon=epsilon)
    return Additive(sizes, "gaussian", False, scale, E, E, proof)


def local_bernoulli(sizes: Sizes) -> Additive:
    """Randomised response on every entry of a device's report (Remark 7, which prints no scale).

    A bit kept with probability e^e0 / (1 + e^e0) tells e0. Two trajectories differ in 6H entries,
    so e0 = eps / (6H), or eps / (3H) by the paper's own count (``printed``). A report without bias
    has two values, w = 1 / tanh(e0 / 2) apart: m of them are off by more than
    w sqrt(m ln(2 / p) / 2) with probability p at most (Hoeffding).
    """
    K, H = sizes.episodes, sizes.horizon
    _refuse_delta(sizes, "randomised response is pure")
    e0 = sizes.epsilon / ((3.0 if sizes.printed else 6.0) * H)
    width = math.sqrt(math.log(2.0 / sizes.share) / 2.0) / math.tanh(e0 / 2.0)
    E = width * (math.sqrt(K) * np.ones(K) if sizes.printed else _grown(K, np.sqrt))
    proof = _laplace_proof(sizes, "local", 6.0 * H * e0, 1)
    return Additive(sizes, "bernoulli", False, float(expit(-e0)), E, E, proof)


def no_privacy(sizes: Sizes) -> Additive:
    """The true counts: what the paper compares with."""
    zero = np.zeros(sizes.episodes)
    return Additive(sizes, "none", False, 0.0, zero, zero, NO_NOISE)


_REPORTS = "reports of every entry"
PRIVATIZERS: dict[str, Make] = {
    "central": central,
    "local": local,
    "local-gaussian": local_gaussian,
    "local-bernoulli": local_bernoulli,
    "none": no_privacy,
}


def _grown(episodes: int, width: Callable[[Floats], Floats]) -> Floats:
    """The width of k - 1 reports' noise in episode k; there is none before the first."""
    return np.concatenate([np.zeros(1), width(np.arange(1.0, episodes))])


def lemma_logs(sizes: Sizes) -> Floats:
    """Of Lemmas 3 and 4: log(6 S A T / delta) and log(6 S^2 A T / delta)."""
    first = math.log(6.0 * sizes.pairs * sizes.episodes / sizes.failure)
    return np.array([first, first + math.log(sizes.states)])


def _laplace_proof(
    sizes: Sizes, model: Literal["joint", "local"], epsilon: float, nodes: int
) -> Proof:
    words = f"a replaced user changes up to 6H entries by 1, in {nodes} nodes; the paper counts 3H"
    claim, how = f"{sizes.epsilon:g}-JDP", (sizes.episodes - 1, "binary tree")
    if model == "local":
        claim, how = f"{sizes.epsilon:g}-LDP", (1, _REPORTS)
    proven = None, 0.0, how[0], claim, how[1], words
    return gaussian_proof(*proven, model=model, epsilon=epsilon)


def _refuse_delta(sizes: Sizes, why: str) -> None:
    if sizes.delta > 0.0:
        raise InvalidArgument(f"delta must be 0 here, got {sizes.delta:g}: {why}")


# Algorithms 1 and 2.


def ucb_po(
    world: FiniteWorld,
    *,
    episodes: int,
    epsilon: float,
    delta: float = 0.0,
    privatizer: str | Make = "central",
    failure: float = 0.1,
    eta: float | None = None,
    printed: bool = True,
    seed: int = 0,
) -> PaperResult:
    """Algorithm 1, PRIVATE-UCB-PO.

    Args:
        world: a finite world; its rewards become costs 1 - reward.
        episodes: K.
        epsilon: the privacy level.
        delta: of (epsilon, delta)-privacy, where the noise is Gaussian.
        privatizer: "central", "local", "local-gaussian", "local-bernoulli", "none", or what makes
            a :class:`Privatizer` from :class:`Sizes`.
        failure: the paper's confidence level delta.
        eta: step size; Theorem 1's sqrt(2 log A / (H^2 K)) by default.
        printed: the paper's constants, or those that are proven.
        seed: of the users, and of the noise (that of a simulation).

    >>> from tacit.tabular import riverswim
    >>> print(ucb_po(riverswim(3, 4), episodes=1000, epsilon=1.0))  # doctest: +ELLIPSIS
    PRIVATE-UCB-PO, as printed
    episodes         1,000
    regret           345.779
    value at the end 0.0501413 of 0.39592
    claimed          1-JDP
    proven           (2.00687, 0)-JDP per user, replace-one, 999 releases, ...
    because          a replaced user changes up to 6H entries by 1, in 10 nodes; the paper counts 3H
    """
    sizes = sizes_of(world, episodes, epsilon, delta, failure, printed=printed, seed=seed)
    if eta is None:
        A, H, K = sizes.actions, sizes.horizon, sizes.episodes
        eta = math.sqrt(2.0 * math.log(A) / (H**2 * K))
    return _run("PRIVATE-UCB-PO", world, sizes, privatizer, positive("eta", eta), seed)


def ucb_vi(
    world: FiniteWorld,
    *,
    episodes: int,
    epsilon: float,
    delta: float = 0.0,
    privatizer: str | Make = "central",
    failure: float = 0.1,
    printed: bool = True,
    seed: int = 0,
) -> PaperResult:
    """Algorithm 2, PRIVATE-UCB-VI; arguments as in :func:`ucb_po`. Ties are broken at random.

    >>> from tacit.tabular import riverswim
    >>> result = ucb_vi(riverswim(3, 4), episodes=1000, epsilon=1.0, printed=False)
    >>> result.guarantee.epsilon
    1.0
    """
    sizes = sizes_of(world, episodes, epsilon, delta, failure, printed=printed, seed=seed)
    return _run("PRIVATE-UCB-VI", world, sizes, privatizer, 0.0, seed)


def sizes_of(world: FiniteWorld, episodes: int, *levels: float, printed: bool, seed: int) -> Sizes:
    """What is asked for, checked."""
    epsilon, delta, failure = levels
    K, model = whole_number("episodes", episodes, most=10**8), world.model
    epsilon, failure = positive("epsilon", epsilon), failure_of(failure)
    delta = checked_number("delta", delta, "from 0 to below 1", lambda d: 0 <= d < 1)
    how = epsilon, delta, failure, flag("printed", printed), Noise(seed)
    return Sizes(K, model.horizon, model.states, model.actions, *how)


class Work(NamedTuple):
    """What the loops below write to, over and over."""

    cells: Floats  # the private counts N, C and M, one after another
    raw: Floats  # the true ones
    above: Floats  # noise: of the tree's nodes, or of all reports
    at: loops.Room  # the Q and V of episodes, and a user
    curves: Floats  # the policies' true values, and estimates of them, (2, K)


class Constants(NamedTuple):
    """Lemma 1's L_c and L_p, Theorem 1's eta, and which algorithm it is."""

    Lc: float
    Lp: float
    eta: float
    value_iteration: bool
    cut: bool  # moves that the noise made negative count as none, which is tighter


@inner
def _plan(E1: float, E2: float, of: Constants, work: Work) -> None:
    """Private Q and V of one episode: lines 5 to 10 of Algorithm 1, 4 to 9 of Algorithm 2."""
    H, S, A = work.at.Q.shape
    pairs = work.at.Q.size
    # Alg. 1, line 5; Alg. 2, line 4.
    work.at.V[H] = 0.0
    # Alg. 1, line 6; Alg. 2, line 5. Here h counts from 0, so H - h + 1 is H - h.
    for h in range(H - 1, -1, -1):
        for s in range(S):
            for a in range(A):
                # Alg. 1, line 7; Alg. 2, line 6: (1).
                pair = (h * S + s) * A + a
                n = max(1.0, work.cells[pair] + E1)
                c = work.cells[pairs + pair] / n
                # Alg. 1, line 8: Lemma 1. Alg. 2, line 7: Lemma 2.
                bonus = of.Lc / math.sqrt(n) + 3.0 * E1 / n
                if of.value_iteration:
                    bonus += H * of.Lc / math.sqrt(n) + H * (S * E2 + 2.0 * E1) / n
                else:
                    bonus += H * (of.Lp / math.sqrt(n) + (S * E2 + 2.0 * E1) / n)
                # Alg. 1, line 9; Alg. 2, line 8.
                moved = work.cells[2 * pairs + pair * S :][:S]
                total = loops.dot(work.at.V[h + 1], np.maximum(moved, 0.0) if of.cut else moved)
                work.at.Q[h, s, a] = min(float(H - h), max(0.0, c + total / n - bonus))
            # Alg. 1, line 10; Alg. 2, line 9.
            Q = work.at.Q[h, s]
            work.at.V[h, s] = Q.min() if of.value_iteration else loops.dot(Q, work.at.pi[h, s])


@inner
def choose(rng: np.random.Generator, work: Work) -> None:
    """Alg. 2, line 10: argmin_a Q, one of equals at random."""
    H, S, A = work.at.Q.shape
    for h in range(H):
        for s in range(S):
            best, equals = 0, 1
            for a in range(1, A):
                if work.at.Q[h, s, a] < work.at.Q[h, s, best]:
                    best, equals = a, 1
                elif work.at.Q[h, s, a] == work.at.Q[h, s, best]:
                    equals += 1
                    if rng.random() * equals < 1.0:
                        best = a
            work.at.greedy[h, s] = best
            work.at.pi[h, s] = 0.0
            work.at.pi[h, s, best] = 1.0


@inner
def follow(k: int, rng: np.random.Generator, users: loops.Users, greedy: bool, work: Work) -> None:
    """The value of a policy, what is thought of it, and a user's trajectory."""
    work.curves[0, k] = loops.policy_value(users, work.at)
    work.curves[1, k] = loops.dot(users.first, len(work.at.pi) - work.at.V[0])
    loops.roll_out_one(rng, users, greedy, work.at)


@compiled
def _episode(
    k: int, rng: np.random.Generator, users: loops.Users, E: Floats, of: Constants, work: Work
) -> None:
    """Episode k + 1 up to its trajectory."""
    _plan(E[0, k], E[1, k], of, work)
    if of.value_iteration:
        choose(rng, work)
    # Alg. 1, line 11; Alg. 2, line 11.
    follow(k, rng, users, of.value_iteration, work)
    # Alg. 1, line 13.
    if not of.value_iteration:
        loops.mirror_step(-of.eta, work.at)


@inner
def _count(work: Work) -> None:
    """Adds a user's one-hot tensors; costs are cut to [0, 1], which bounds what she can change."""
    H, S, A = work.at.Q.shape
    for h in range(H):
        pair = (h * S + work.at.states[0, h]) * A + work.at.actions[0, h]
        cost = 1.0 - min(1.0, max(0.0, work.at.rewards[0, h]))
        work.raw[pair] += 1.0
        work.raw[H * S * A + pair] += cost
        work.raw[2 * H * S * A + pair * S + work.at.states[0, h + 1]] += 1.0


@inner
def privatise(k: int, how: int, scale: float, units: Floats, work: Work) -> None:
    """The private counts after one more user; ``how`` is 0 for trees, 1 for reports, 2 for bits."""
    if how == 2:
        work.raw[:] = 0.0
        _count(work)
        bits = np.where(units < scale + work.raw * (1.0 - 2.0 * scale), 1.0, 0.0)
        work.cells[:] += (bits - scale) / (1.0 - 2.0 * scale)
        return
    _count(work)
    level = grow_tree(k + 1, units, work.above) if how == 0 else 0
    if how == 1:
        work.above[0] += units
    work.cells[:] = work.raw + scale * work.above[level]


@compiled
def _learn(
    first: int,
    rng: np.random.Generator,
    users: loops.Users,
    E: Floats,
    of: Constants,
    work: Work,
    how: int,
    scale: float,
    units: Floats,
) -> None:
    """Episodes first + 1, first + 2, ..."""
    # Alg. 1, line 4; Alg. 2, line 3.
    for i in range(len(units)):
        k = first + i
        _episode(k, rng, users, E, of, work)
        # Alg. 1, line 12; Alg. 2, line 12: the PRIVATIZER.
        privatise(k, how, scale, units[i], work)


_CHUNK = 64  # episodes whose noise is drawn at once


def work_of(sizes: Sizes) -> Work:
    """Room for a run."""
    return Work(
        # Alg. 1, line 2; Alg. 2, line 1.
        np.zeros(sizes.cells),
        np.zeros(sizes.cells),
        np.zeros((tree_nodes(sizes.episodes), sizes.cells)),
        # Alg. 1, line 1.
        loops.room_of(sizes.horizon, sizes.states, sizes.actions),
        np.empty((2, sizes.episodes)),
    )


def _run(
    name: str, world: FiniteWorld, sizes: Sizes, privatizer: str | Make, eta: float, seed: int
) -> PaperResult:
    K, H, S, A = sizes.episodes, sizes.horizon, sizes.states, sizes.actions
    # Alg. 1, line 3; Alg. 2, line 2.
    if not callable(privatizer):
        privatizer = PRIVATIZERS[one_of("privatizer", privatizer, list(PRIVATIZERS))]
    made = privatizer(sizes)
    # Lemma 1 holds with 1 - 2 delta and Lemma 2 with 1 - 3 delta, the theorems say 1 - delta.
    failure = sizes.failure if sizes.printed else sizes.failure / 3.0
    Lc = math.sqrt(2.0 * math.log(4.0 * S * A * K * H / failure))
    Lp = math.sqrt(4.0 * S * math.log(6.0 * S * A * K * H / failure))
    of = Constants(Lc, Lp, eta, vi := name.endswith("VI"), not sizes.printed)
    work, users = work_of(sizes), loops.users_of(world.model)
    rng = np.random.default_rng([seed, 1])
    E = np.stack([made.E1, made.E2])
    if isinstance(made, Additive):
        how = 2 if made.law == "bernoulli" else 0 if made.tree else 1
        for first in range(0, K, _CHUNK):
            units = made.units(min(_CHUNK, K - first))
            _learn(first, rng, users, E, of, work, how, made.scale, units)
    else:
        for k in range(K):
            _episode(k, rng, users, E, of, work)
            costs = 1.0 - np.clip(work.at.rewards[0], 0.0, 1.0)
            given = made.receive(work.at.states[0].copy(), work.at.actions[0].copy(), costs)
            work.cells[:] = np.concatenate([np.ravel(part) for part in given])
    constants = {"E1": float(E[0, -1]), "E2": float(E[1, -1]), "L_c": Lc, "L_p": Lp, "eta": eta}
    last = Policy.deterministic(work.at.greedy, A) if vi else Policy.stochastic(work.at.pi)
    what = name, sizes.printed, world.optimal_value
    values, estimates = map(world.returns, work.curves)
    return PaperResult(*what, values, estimates, last, made.proof, constants, ERRATA)
