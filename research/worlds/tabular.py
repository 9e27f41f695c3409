"""Finite worlds: patients at random, those of a model made of records, and a habit."""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import Floats, check_bytes, whole_number
from tacit.tabular.policy import Policy
from tacit.tabular.world import SparseWorld, TabularWorld

# Shares of states that allow so many actions.
_ALLOWED = {1: 0.3, 2: 0.1, 3: 0.15, 4: 0.25, 5: 0.1, 7: 0.1}


class ReferenceWorld(SparseWorld):
    """One with a policy of people, to compare with; losses are relative to the baseline.

    Attributes:
        people: what people do: probabilities of actions that states allow, (S, A).
    """

    people: Any

    @property
    def reference_value(self) -> float:
        """The value of acting uniformly at random, as far as states allow."""
        return self.baseline_value

    @cached_property
    def people_value(self) -> float:
        """The value of what people do."""
        table = np.broadcast_to(self.people, (self.spec.horizon, *self.people.shape))
        return self.value(Policy.stochastic(table))


def sparse_mdp(
    states: int = 400, actions: int = 10, horizon: int = 20, seed: int = 0, effect: float = 0.2
) -> SparseWorld:
    """Patients drawn at random: many states of health, few that follow on one another.

    State:
        All but two are states of health, each with a severity that is standard normal and that
        nobody is told. The last but one is death, the last survival; both are for ever. The start
        is random.
    Actions:
        A state allows 1 to 7 of them, 3.2 on average (all of them where there are fewer). Each
        pulls severity towards 0.9 times what it is, plus a normal number with standard deviation
        ``effect`` of the state and the action, and leads to 5 to 39 states near by. A stay ends
        with a probability of 6 % and more, in death the more likely the more severe it is.
    Reward:
        1 on survival. An episode that does not end pays nothing; all rewards of an episode add up
        to at most 1, and that is public.
    Optimum:
        Depends on the seed: .7318 where uniform has .5638 at the defaults.
    Source:
        Invented for this library: constants of agents for many states were chosen on it.

    >>> world = sparse_mdp(states=50)
    >>> world.spec.largest_return, world.baseline_value < world.optimal_value < 1
    (1.0, True)
    """
    S, A, H = (whole_number(*size) for size in _sizes(states, actions, horizon))
    if S < 8:
        raise InvalidArgument(f"states must be >= 8, got {states!r}")
    seed = whole_number("seed", seed, least=0)
    if not 0.0 < effect < 10.0:
        raise InvalidArgument(f"effect must be in (0, 10), got {effect!r}")
    check_bytes("possible transitions", (S, 5, 40), 40)
    rng = np.random.default_rng(seed)
    live = S - 2
    severity = rng.normal(size=live)
    allowed = np.minimum(rng.choice(list(_ALLOWED), p=list(_ALLOWED.values()), size=live), A)
    rows: list[tuple[int, int, Any, Floats]] = []
    for s in range(live):
        for a in np.sort(rng.choice(A, allowed[s], replace=False)):
            after = 0.9 * severity[s] + effect * rng.normal()
            weights = np.exp(-2.0 * (severity - after) ** 2) * rng.gamma(0.3, size=live)
            near = np.argsort(-weights)[: min(live, rng.integers(5, 40))]
            near = near[weights[near] > 0]
            ends = 0.06 * (1.0 + abs(after))
            dies = ends / (1.0 + np.exp(1.0 - 2.0 * after))
            moves = (1.0 - ends) * weights[near] / weights[near].sum()
            rows.append(
                (s, a, np.append(near, [S - 2, S - 1]), np.append(moves, [dies, ends - dies]))
            )
    rows += [(s, 0, np.array([s]), np.ones(1)) for s in (S - 2, S - 1)]
    counts = [len(targets) for _, _, targets, _ in rows]
    source = np.repeat([s for s, _, _, _ in rows], counts)
    target = np.concatenate([targets for _, _, targets, _ in rows])
    return SparseWorld(
        S,
        A,
        H,
        source,
        np.repeat([a for _, a, _, _ in rows], counts),
        target,
        np.concatenate([moves for _, _, _, moves in rows]),
        ((target == S - 1) & (source < S - 2)).astype(np.float64),
        start=np.append(rng.dirichlet(np.full(live, 0.5)), [0.0, 0.0]),
        largest_return=1.0,
        name=f"research.worlds.sparse_mdp:states={S},actions={A},horizon={H},seed={seed},effect={effect}",
    )


def _sizes(states: int, actions: int, horizon: int) -> tuple[tuple[str, int], ...]:
    return ("states", states), ("actions", actions), ("horizon", horizon)


def icu_sepsis(horizon: int = 20) -> ReferenceWorld:
    """Sepsis in intensive care: a model of patients' records, written by others.

    State:
        713 clusters of a patient's measurements, then death, survival and the end of all, 716. The
        start is that of the records.
    Actions:
        5 levels of fluids times 5 of vasopressors, 25. A state allows those that clinicians gave in
        it often enough, 3.1 on average; states without choice, and the last three, one.
    Reward:
        1 on survival, which also is the largest return. A stay that does not end within the
        horizon pays nothing.
    Optimum:
        .7922 at 20 steps, uniform .6854; ``people_value``, of the clinicians, .6920. Without a
        limit .8751, .7801 and .7818.
    Source:
        The package icu-sepsis (Choudhary et al., 2024, ICU-Sepsis), built on MIMIC-III.
        Actions that a state does not allow behave there like a mean of those it
        does, and so they do here in ``people``.
    """
    H = whole_number("horizon", horizon)
    found = find_spec("icu_sepsis")
    if found is None or found.origin is None:
        raise InvalidArgument("icu_sepsis needs the package icu-sepsis: pip install icu-sepsis")
    # Its files are read as they are: to import it imports much that nobody needs here.
    folder = Path(found.origin).parent / "envs" / "assets"
    with np.load(folder / "dynamics.npz", allow_pickle=False) as file:
        transitions, start, people = (file[n] for n in ("tx_mat", "d_0", "expert_policy"))
    lines = (folder / "admissible_actions.txt").read_text().splitlines()[1:]
    S, A = transitions.shape[:2]
    death, survival = S - 3, S - 2
    allowed = np.zeros((S, A), dtype=bool)
    for s, line in enumerate(lines[:death]):
        allowed[s, [int(a) for a in line.split()]] = True
    allowed[death:, 0] = True
    source, action = np.nonzero(allowed)
    cells, target = np.nonzero(transitions[source, action])
    probability = transitions[source[cells], action[cells], target]
    world = ReferenceWorld(
        S,
        A,
        H,
        source[cells],
        action[cells],
        target,
        probability,
        ((target == survival) & (source[cells] < death)).astype(np.float64),
        start=start,
        largest_return=1.0,
        name=f"research.worlds.icu_sepsis:horizon={H}",
    )
    inside = np.where(allowed, people, 0.0)
    rest = 1.0 - inside.sum(axis=1, keepdims=True)
    world.people = inside + np.where(allowed, rest / allowed.sum(axis=1, keepdims=True), 0.0)
    return world


def habit(horizon: int = 140, levels: int = 4, burdens: int = 3) -> TabularWorld:
    """A habit that messages build, and a burden that they are; who is burdened does not listen.

    State:
        ``burdens`` * habit + burden; the start is 0, neither.
    Actions:
        0 quiet: burden falls by one with .4. 1 message: burden rises by one with .5.
        Habit rises by one with .25 after a message, less in proportion to the burden, and falls
        with .03; after a message at the full burden with .15.
    Reward:
        Bernoulli with mean .1 + .6 habit / (``levels`` - 1), less .05 for a message.
    Optimum:
        Messages while there is no burden and a habit to build, and quiet else.
    Source:
        Invented for this library: what an app does today pays some decisions later.

    >>> world = habit()
    >>> round(world.optimal_value, 2), round(world.baseline_value, 2)
    (77.89, 44.83)
    """
    H, L = whole_number("horizon", horizon), whole_number("levels", levels, least=2)
    B = whole_number("burdens", burdens, least=2)
    P, R = np.zeros((L, B, 2, L, B)), np.zeros((L, B, 2))
    for h, b, a in np.ndindex(L, B, 2):
        up = a * 0.25 * (1 - b / (B - 1)) * (h < L - 1)
        down = (0.03 + 0.12 * a * (b == B - 1)) * (h > 0)
        heavier, lighter = a * 0.5 * (b < B - 1), (1 - a) * 0.4 * (b > 0)
        for to_h, p in ((min(h + 1, L - 1), up), (max(h - 1, 0), down), (h, 1 - up - down)):
            P[h, b, a, to_h, min(b + 1, B - 1)] += p * heavier
            P[h, b, a, to_h, max(b - 1, 0)] += p * lighter
            P[h, b, a, to_h, b] += p * (1 - heavier - lighter)
        R[h, b, a] = 0.1 + 0.6 * h / (L - 1) - 0.05 * a
    S, name = L * B, f"research.worlds.habit:horizon={H},levels={L},burdens={B}"
    return TabularWorld(P.reshape(S, 2, S), R.reshape(S, 2), H, name=name)
