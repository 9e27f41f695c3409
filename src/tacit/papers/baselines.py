"""Systems that the tabular paper compares with, RECONSTRUCTED from memory and its remarks.

* :func:`pucb`: PUCB of Vietri, Balle, Krishnamurthy and Wu (2020), joint DP, finite worlds.
* :func:`ldp_ob`: LDP-OB of Garcelon, Perchet, Pike-Burke and Pirotta (2020), local DP.

No text of theirs was at hand. Constants are valid bounds, the noise has exactly the requested
privacy, and results say nothing about what their authors reached. Simulations, for figures alone.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.numerics.compiled import Floats, compiled, inner
from tacit.papers import chowdhury_tabular_2021 as tabular
from tacit.papers.counters import laplace_width
from tacit.papers.finite_loops import Users, dot, users_of
from tacit.papers.result import PaperResult, Sizes
from tacit.privacy.noise import Noise
from tacit.privacy.validation import whole_number
from tacit.tabular.policy import Policy

if TYPE_CHECKING:
    from tacit.tabular.world import FiniteWorld

RECONSTRUCTED = ("reconstructed from memory and from descriptions: constants are not the text's",)
"""In the place of errata."""
_CHUNK = 64  # episodes whose noise is drawn at once


# Finite worlds: three counts of every step, with the noise of tacit.papers.chowdhury_tabular_2021.


@inner
def _optimism(E: float, row: float, local: bool, L: float, work: tabular.CountWork) -> None:
    """Optimistic costs; E bounds the noise of a count, ``row`` that of all moves of a cell."""
    H, S, A = work.at.Q.shape
    pairs = work.at.Q.size
    work.at.V[H] = 0.0
    for h in range(H - 1, -1, -1):
        left = float(H - h)
        for s in range(S):
            for a in range(A):
                pair = (h * S + s) * A + a
                n, cost = work.cells[pair], work.cells[pairs + pair]
                moved = work.cells[2 * pairs + pair * S :][:S]
                moves, ahead = moved.sum(), dot(moved, work.at.V[h + 1])
                if local:
                    # Denominators are raised by twice their noise's bound; any alpha > 1 will do.
                    n, m = max(1.0, n + 2.0 * E), max(1.0, moves + 2.0 * row)
                    bonus = math.sqrt(2.0 * L / n) + 4.0 * E / n
                    bonus += left * (math.sqrt(14.0 * S * L / m) + (S * E + 3.0 * row) / m)
                    Q = cost / n + ahead / m - bonus
                elif n >= max(1.0, 2.0 * E):
                    bonus = (H + 1.0) * math.sqrt(2.0 * L / max(n - E, 1.0))
                    bonus += (1.0 + S * H) * (3.0 * E / n + 2.0 * (E / n) ** 2)
                    Q = (cost + ahead) / n - bonus
                else:
                    Q = 0.0  # not known: as good as can be
                work.at.Q[h, s, a] = min(left, max(0.0, Q))
            work.at.V[h, s] = work.at.Q[h, s].min()


@compiled
def _serve(
    first: int,
    rng: np.random.Generator,
    users: Users,
    E: Floats,
    local: bool,
    L: float,
    work: tabular.CountWork,
    scale: float,
    units: Floats,
) -> None:
    """Episodes first + 1, first + 2, ..., each with a policy of its own."""
    for i in range(len(units)):
        _optimism(E[0, first + i], E[1, first + i], local, L, work)
        tabular.choose(rng, work)
        tabular.follow(first + i, rng, users, True, work)
        tabular.privatise(first + i, not local, scale, units[i], work)


def pucb(
    world: FiniteWorld,
    *,
    episodes: int,
    epsilon: float,
    delta: float = 0.0,
    failure: float = 0.1,
    local: bool = False,
    seed: int = 0,
) -> PaperResult:
    """PUCB after Vietri et al. (2020), reconstructed: Hoeffding bonuses on counts in binary trees.

    A cell is unknown, and worth all it could be, until its noisy count reaches twice the bound E
    of the noise. From then on the bonus is (H + 1) sqrt(2 L / (n - E)) and
    (1 + S H) (3 E / n + 2 E^2 / n^2) for the noise, L = ln(4 S A H K / failure).

    Args:
        world: a finite world; its rewards become costs 1 - reward.
        episodes: K.
        epsilon: the privacy level.
        delta: Laplace noise for 0, else Gaussian.
        failure: the probability with which the bonus may be too small.
        local: LDP-OB instead, see :func:`ldp_ob`.
        seed: of the users, and of the noise (that of a simulation).
    """
    model, K = world.model, whole_number("episodes", episodes, most=10**8)
    H, S, A = model.horizon, model.states, model.actions
    sizes = Sizes(K, H, (S, A), epsilon, delta, failure, False, Noise(seed))
    gaussian = sizes.delta > 0.0
    device = tabular.local_gaussian if gaussian else tabular.local
    made = (device if local else tabular.central)(sizes)
    E = made.E1
    rows = math.sqrt(S) * E
    if local and not gaussian:
        served = np.arange(1.0, K)
        rows = made.scale * np.append(0.0, laplace_width(S * served, tabular.share(sizes)))
    L = math.log((6.0 if local else 4.0) * S * A * H * K / failure)
    work, users = tabular.work_of(sizes), users_of(model)
    rng, bounds = np.random.default_rng([seed, 1]), np.stack([E, rows])
    for first in range(0, K, _CHUNK):
        units = made.units(min(_CHUNK, K - first))
        _serve(first, rng, users, bounds, local, L, work, made.scale, units)
    values, estimates = map(world.returns, work.curves)
    name = f"{'LDP-OB' if local else 'PUCB'}, reconstructed"
    last, constants = Policy.deterministic(work.at.greedy, A), {"E": float(E[-1]), "L": L}
    claim = f"{sizes.epsilon:g}-{'LDP' if local else 'JDP'}"
    reason = "two users are 6H apart in their counts of all steps together"
    proof = dataclasses.replace(made.proof, claim=claim, reason=reason)
    what = name, False, world.optimal_value, values, estimates, last
    base = world.baseline_value
    return PaperResult(*what, proof, constants, RECONSTRUCTED, baseline_value=base)


def ldp_ob(world: FiniteWorld, **options: Any) -> PaperResult:
    """LDP-OB after Garcelon et al. (2020), reconstructed; options as in :func:`pucb`.

    Devices add noise to their counts. Denominators are raised until they are positive for sure; the
    bonus has the noise of the sums, Hoeffding's bound for rewards and Weissman's for next states.
    """
    return pucb(world, local=True, **options)
