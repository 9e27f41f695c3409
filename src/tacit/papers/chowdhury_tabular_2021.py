r"""Chowdhury and Zhou: Differentially Private Regret Minimization in Episodic MDPs.

Sayak Ray Chowdhury and Xingyu Zhou, AAAI 2022 (arXiv 2021). PRIVATE-UCB-PO (Algorithm 1) and
PRIVATE-UCB-VI (Algorithm 2) with any PRIVATIZER: the paper's CENTRAL-PRIVATIZER (Laplace noise on
binary trees), its LOCAL-PRIVATIZER (Laplace noise on every device), the Gaussian one of its
Remark 7, or your own.

The paper minimises costs; a world has rewards. The cost of a step is 1 - reward, so that regret is
the same. K episodes, H steps, S states, A actions, T = KH.

A simulation, whose loop sees raw trajectories and plans with what its PRIVATIZER gives it.
``docs/papers/chowdhury_tabular_2021.md`` has the paper's lines beside the code's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator

import tacit.papers.finite_loops as loops
from tacit.numerics.compiled import Floats, Ints, compiled, inner
from tacit.papers.counters import grow_tree, laplace_width, normal_width, tree_nodes
from tacit.papers.result import NO_NOISE, PaperResult, Proof, Sizes, proven
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise
from tacit.privacy.validation import checked_number, one_of, positive, whole_number
from tacit.tabular.policy import Policy

if TYPE_CHECKING:
    from tacit.tabular.world import FiniteWorld

ERRATA = (
    "Lemmas 3 and 4 print eps' = 3H log K / eps and 3H / eps; it is the inverse of the noise scale",
    "V and Q print a'_h for a_h'",
)
"""Misprints without whose correction there is nothing to run; ``printed=True`` has these too."""


def cells_of(sizes: Sizes) -> int:
    """Entries of all counts N, C and M: H (2 S A + S^2 A)."""
    S, A = sizes.shape
    return sizes.horizon * S * A * (2 + S)


def share(sizes: Sizes) -> float:
    """Probability of failure per entry and episode, a third of it in all."""
    return sizes.failure / 3.0 / (cells_of(sizes) * sizes.episodes)


def distance(sizes: Sizes) -> float:
    """L1 and squared L2 distance of two users' counts: 6H, as each of N, C, M moves 1 at each step.

    First states are users' data; where they are fixed, as in the paper, 6H - 3 is attained.
    """
    return 6.0 * sizes.horizon


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
    """A PRIVATIZER of the paper: independent noise of one law, on nodes of trees or on reports."""

    sizes: Sizes
    law: Literal["laplace", "gaussian", "none"]
    tree: bool
    scale: float
    E1: Floats
    E2: Floats
    proof: Proof

    def units(self, episodes: int) -> Floats:
        """Unit noise of the next episodes, (episodes, cells)."""
        shape, noise = (episodes, cells_of(self.sizes)), self.sizes.noise
        if self.law == "laplace":
            return noise.laplace_sum(1, shape)  # the same law as laplace, drawn faster
        return noise.normal(shape) if self.law == "gaussian" else np.zeros(shape)


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
        E1, E2 = (np.broadcast_to(E, (K,)) for E in (E1, E2))
        return Additive(sizes, "laplace", True, scale, E1, E2, _pure_proof(sizes, scale, nodes))
    if sizes.delta > 0.0:
        scale = math.sqrt(distance(sizes) * nodes) / sizes.budget.mu
        width = math.sqrt(nodes) * normal_width(share(sizes))
        proof = proven(
            f"{sizes.epsilon:g}-JDP with Laplace noise",
            f"squared L2 distance 6H, {nodes} nodes per user",
            mechanism="binary tree, Gaussian noise",
            mu=math.sqrt(distance(sizes) * nodes) / scale,
            delta=sizes.delta,
            releases=K - 1,
        )
    else:
        scale = distance(sizes) * nodes / sizes.epsilon
        width = float(laplace_width(float(nodes), share(sizes)))
        proof = _pure_proof(sizes, scale, nodes)
    E = np.broadcast_to(scale * width, (K,))
    law: Literal["gaussian", "laplace"] = "gaussian" if sizes.delta > 0.0 else "laplace"
    return Additive(sizes, law, True, scale, E, E, proof)


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
        scale = distance(sizes) / sizes.epsilon
        E1 = E2 = scale * np.append(0.0, laplace_width(np.arange(1.0, K), share(sizes)))
    return Additive(sizes, "laplace", False, scale, E1, E2, _pure_proof(sizes, scale))


def local_gaussian(sizes: Sizes) -> Additive:
    """Gaussian noise on every entry of a device's report (Remark 7, which prints no scale).

    ``printed`` takes the paper's own count of what a user changes, 3H, for the squared L2 distance;
    corrected it is 6H.
    """
    counted = 3.0 * sizes.horizon if sizes.printed else distance(sizes)
    scale = math.sqrt(counted) / sizes.budget.mu
    E = scale * normal_width(share(sizes)) * _roots(sizes)
    proof = proven(
        f"({sizes.epsilon:g}, {sizes.delta:g})-LDP",
        "the squared L2 distance of two trajectories is 6H",
        mechanism=f"{_REPORTS}, Gaussian noise",
        model="local",
        mu=math.sqrt(distance(sizes)) / scale,
        delta=sizes.delta,
        releases=1,
    )
    return Additive(sizes, "gaussian", False, scale, E, E, proof)


def no_privacy(sizes: Sizes) -> Additive:
    """The true counts, for comparison."""
    zero = np.zeros(sizes.episodes)
    return Additive(sizes, "none", False, 0.0, zero, zero, NO_NOISE)


_REPORTS = "reports of every entry"
PRIVATIZERS: dict[str, Make] = {
    "central": central,
    "local": local,
    "local-gaussian": local_gaussian,
    "none": no_privacy,
}


def _roots(sizes: Sizes) -> Floats:
    """The root of how many reports there were before each episode; of all of them as printed."""
    K = sizes.episodes
    return math.sqrt(K) * np.ones(K) if sizes.printed else np.sqrt(np.arange(0.0, K))


def lemma_logs(sizes: Sizes) -> Floats:
    """Of Lemmas 3 and 4: log(6 S A T / delta) and log(6 S^2 A T / delta)."""
    S, A = sizes.shape
    first = math.log(6.0 * sizes.horizon * S * A * sizes.episodes / sizes.failure)
    return np.array([first, first + math.log(S)])


def bernstein_width(made: Additive, P: Floats, n: Floats) -> Floats:
    """Lemma 2, part 3: how far an estimate of P(s' | s, a) is off, n = max(1, N + E1).

    C sqrt(L' P / n) + (C L' + 2 E1 + E2) / n, L' = log(6 S A T / delta); only analysed with.
    C is not printed. Bernstein's inequality with x = log(2 S^2 A T / delta) <= 2 L' proves C = 2.
    """
    log_term, E1, E2 = lemma_logs(made.sizes)[0], made.E1[-1], made.E2[-1]
    width: Floats = 2.0 * np.sqrt(log_term * P / n) + (2.0 * log_term + 2.0 * E1 + E2) / n
    return width


def _pure_proof(sizes: Sizes, scale: float, nodes: int = 0) -> Proof:
    """Of Laplace noise of this scale on the nodes of trees, or on reports where there are none."""
    claim, how = f"{sizes.epsilon:g}-JDP", ("joint", sizes.episodes - 1, "binary tree")
    if not nodes:
        claim, how = f"{sizes.epsilon:g}-LDP", ("local", 1, _REPORTS)
    where = f"in {nodes} nodes" if nodes else "in her report"
    changed = f"a replaced user changes up to 6H entries by 1, {where}"
    words: dict[str, Any] = dict(zip(("model", "releases", "mechanism"), how, strict=True))
    words["epsilon"] = distance(sizes) * max(1, nodes) / scale
    return proven(claim, f"{changed}; the paper counts 3H", **words)


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
        privatizer: "central", "local", "local-gaussian", "none", or what makes
            a :class:`Privatizer` from :class:`Sizes`.
        failure: the paper's confidence level delta.
        eta: step size; Theorem 1's sqrt(2 log A / (H^2 K)) by default. With 0 it is Algorithm 2.
        printed: the paper's constants, or those that are proven.
        seed: of the users, and of the noise (that of a simulation).

    >>> from tacit.tabular import riverswim
    >>> print(ucb_po(riverswim(3, 4), episodes=1000, epsilon=1.0))  # doctest: +ELLIPSIS
    PRIVATE-UCB-PO, as printed
    episodes         1,000
    regret           345.779
    random actions   lose 345.779
    value at the end 0.0501413 of 0.39592
    claimed          1-JDP
    proven           (2.00687, 0)-JDP per user, replace-one, 999 releases, ...
    because          a replaced user changes up to 6H entries by 1, in 10 nodes; the paper counts 3H
    """
    K, model = whole_number("episodes", episodes, most=10**8), world.model
    H, S, A = model.horizon, model.states, model.actions
    sizes = Sizes(K, H, (S, A), epsilon, delta, failure, printed, Noise(seed))
    vi = eta == 0.0
    if eta is None:
        eta = positive("eta", math.sqrt(2.0 * math.log(A) / (H**2 * K)))
    eta = checked_number("eta", eta, "at least 0", lambda x: 0.0 <= x < math.inf)
    # Alg. 1, line 3; Alg. 2, line 2.
    if not callable(privatizer):
        privatizer = PRIVATIZERS[one_of("privatizer", privatizer, list(PRIVATIZERS))]
    made = privatizer(sizes)
    # Lemma 1 holds with 1 - 2 delta and Lemma 2 with 1 - 3 delta, the theorems say 1 - delta.
    fails = failure if printed else failure / 3.0
    Lc = math.sqrt(2.0 * math.log(4.0 * S * A * K * H / fails))
    Lp = math.sqrt(4.0 * S * math.log(6.0 * S * A * K * H / fails))
    of = UCBConstants(Lc, Lp, eta, vi, not printed)
    work, users = work_of(sizes), loops.users_of(model)
    rng, E = np.random.default_rng([seed, 1]), np.stack([made.E1, made.E2])
    if isinstance(made, Additive):
        for first in range(0, K, _CHUNK):
            units = made.units(min(_CHUNK, K - first))
            _learn(first, rng, users, E, of, work, made.tree, made.scale, units)
    else:
        for k in range(K):
            _episode(k, rng, users, E, of, work)
            costs = 1.0 - np.clip(work.at.rewards[0], 0.0, 1.0)
            given = made.receive(work.at.states[0].copy(), work.at.actions[0].copy(), costs)
            work.cells[:] = np.concatenate([np.ravel(part) for part in given])
    constants = {"E1": float(E[0, -1]), "E2": float(E[1, -1]), "L_c": Lc, "L_p": Lp, "eta": eta}
    last = Policy.deterministic(work.at.greedy, A) if vi else Policy.stochastic(work.at.pi)
    values, estimates = map(world.returns, work.curves)
    name, best = f"PRIVATE-UCB-{'VI' if vi else 'PO'}", world.optimal_value
    run = name, printed, best, values, estimates, last, made.proof, constants, ERRATA
    return PaperResult(*run, baseline_value=world.baseline_value)


def ucb_vi(world: FiniteWorld, **options: Any) -> PaperResult:
    """Algorithm 2, PRIVATE-UCB-VI; options as in :func:`ucb_po`, without ``eta``.

    Ties are broken at random.

    >>> from tacit.tabular import riverswim
    >>> result = ucb_vi(riverswim(3, 4), episodes=1000, epsilon=1.0, printed=False)
    >>> result.guarantee.epsilon
    1.0
    """
    if "eta" in options:
        raise InvalidArgument("eta is a step of PRIVATE-UCB-PO")
    return ucb_po(world, eta=0.0, **options)


class CountWork(NamedTuple):
    """Arrays of a run, which the loops below overwrite."""

    cells: Floats  # the private counts N, C and M, one after another
    raw: Floats  # the true ones
    above: Floats  # noise: of the tree's nodes, or of all reports
    at: loops.Room  # the Q and V of episodes, and a user
    curves: Floats  # the policies' true values, and estimates of them, (2, K)


class UCBConstants(NamedTuple):
    """Lemma 1's L_c and L_p, Theorem 1's eta, and which algorithm it is."""

    Lc: float
    Lp: float
    eta: float
    value_iteration: bool
    cut: bool  # moves that the noise made negative count as none, which is tighter


@inner
def _plan(E1: float, E2: float, of: UCBConstants, work: CountWork) -> None:
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
def choose(rng: Generator, work: CountWork) -> None:
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
def follow(k: int, rng: Generator, users: loops.Users, greedy: bool, work: CountWork) -> None:
    """The value of a policy, its estimate, and a user's trajectory.

    Args:
        k: the episode, from 0.
        rng: of the users.
        users: the world.
        greedy: whether the policy is deterministic.
        work: arrays of the run.
    """
    work.curves[0, k] = loops.policy_value(users, work.at)
    work.curves[1, k] = loops.dot(users.first, len(work.at.pi) - work.at.V[0])
    loops.roll_out_one(rng, users, greedy, work.at)


@inner
def _count(work: CountWork) -> None:
    """Adds a user's one-hot tensors; costs are cut to [0, 1], which bounds what she can change."""
    H, S, A = work.at.Q.shape
    for h in range(H):
        pair = (h * S + work.at.states[0, h]) * A + work.at.actions[0, h]
        cost = 1.0 - min(1.0, max(0.0, work.at.rewards[0, h]))
        work.raw[pair] += 1.0
        work.raw[H * S * A + pair] += cost
        work.raw[2 * H * S * A + pair * S + work.at.states[0, h + 1]] += 1.0


@inner
def privatise(k: int, tree: bool, scale: float, units: Floats, work: CountWork) -> None:
    """The private counts after one more user.

    Args:
        k: the episode, from 0.
        tree: whether noise is in trees, or on reports.
        scale: of the noise.
        units: unit noise of this episode.
        work: arrays of the run.
    """
    _count(work)
    level = grow_tree(k + 1, units, work.above) if tree else 0
    if not tree:
        work.above[0] += units
    work.cells[:] = work.raw + scale * work.above[level]


@compiled
def _episode(
    k: int, rng: Generator, users: loops.Users, E: Floats, of: UCBConstants, work: CountWork
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


@compiled
def _learn(
    first: int,
    rng: Generator,
    users: loops.Users,
    E: Floats,
    of: UCBConstants,
    work: CountWork,
    tree: bool,
    scale: float,
    units: Floats,
) -> None:
    """Episodes first + 1, first + 2, ..."""
    # Alg. 1, line 4; Alg. 2, line 3.
    for i in range(len(units)):
        _episode(first + i, rng, users, E, of, work)
        # Alg. 1, line 12; Alg. 2, line 12: the PRIVATIZER.
        privatise(first + i, tree, scale, units[i], work)


_CHUNK = 64  # episodes whose noise is drawn at once


def work_of(sizes: Sizes) -> CountWork:
    """Room for a run."""
    return CountWork(
        # Alg. 1, line 2; Alg. 2, line 1.
        np.zeros(cells_of(sizes)),
        np.zeros(cells_of(sizes)),
        np.zeros((tree_nodes(sizes.episodes), cells_of(sizes))),
        # Alg. 1, line 1.
        loops.room_of(sizes.horizon, *sizes.shape),
        np.empty((2, sizes.episodes)),
    )
