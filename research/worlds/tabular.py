"""Finite worlds: patients drawn at random, and three that others wrote, of their data or rules."""

from __future__ import annotations

import contextlib
import io
import itertools
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.episodes import Episodes
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import Floats, check_bytes, checked_number, whole_number
from tacit.tabular.policy import Policy
from tacit.tabular.world import SparseWorld, TabularWorld

if TYPE_CHECKING:
    from tacit.gym.finite import ImportedWorld

# Shares of states that allow so many actions.
_ALLOWED = {1: 0.3, 2: 0.1, 3: 0.15, 4: 0.25, 5: 0.1, 7: 0.1}

# Bounds of the levels of incentives, in dollars, and what is paid in each on average.
_LEVELS = (0.0, 0.5, 1.2)
_PAID = (0.0, 0.3, 0.9, 2.1)
_DISTANCES, _AGES = (1.0, 2.0), (25.0, 40.0)


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


class TrialWorld(TabularWorld):
    """A randomised trial as a world of one decision, with its log.

    Attributes:
        people: with which probability the trial gave each action, (S, A): its randomisation.
        log: the participants' own episodes. Real people, and public already.
    """

    exchangeable_actions = False
    people: Floats
    log: Episodes

    @cached_property
    def people_value(self) -> float:
        """The value of what the trial gave."""
        return self.value(self.behaviour)

    @property
    def behaviour(self) -> Policy:
        """What the trial gave, as a policy."""
        return Policy.stochastic(self.people[np.newaxis])


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


def incentives(cost: float = 0.1) -> TrialWorld:
    """Money for learning one's HIV result: a trial in rural Malawi, as a contextual bandit.

    State:
        How far the centre is (below 1, below 2, more kilometres) and how old somebody is (below 25,
        below 40, more), 9. There is one decision; the start is how participants were.
    Actions:
        Nothing, up to 0.5, up to 1.2, or more dollars for whoever comes: 4, drawn at random in the
        trial, whatever the state: ``people`` has the shares.
    Reward:
        1 for somebody who learns the result, less ``cost`` times the dollars paid (0.3, 0.9 and 2.1
        on average in a level). How likely somebody comes is the share of participants in her state
        with her action who did, with one more who came and one who did not.
    Optimum:
        .7178 at a cost of .1; uniform has .5936, what the trial gave .6047.
    Source:
        Thornton (2008), The demand for, and impact of, learning HIV status; its data in the package
        causaldata. 2,829 of 4,820 people have all that is needed.
    """
    cost = checked_number("cost", cost, "a number from 0 to 0.4", lambda c: 0.0 <= c <= 0.4)
    states, actions, came = _participants()
    S, A = (len(_DISTANCES) + 1) * (len(_AGES) + 1), len(_PAID)
    counts, successes = np.zeros((S, A)), np.zeros((S, A))
    np.add.at(counts, (states, actions), 1.0)
    np.add.at(successes, (states, actions), came)
    chance = (successes + 1.0) / (counts + 2.0)
    worth = 1.0 - cost * np.array(_PAID)
    values, level = np.unique(np.append(worth, 0.0), return_inverse=True)
    probabilities = np.zeros((S, A, len(values)))
    probabilities[:, np.arange(A), level[:A]] = chance
    probabilities[:, :, level[A]] += 1.0 - chance
    start = np.bincount(states, minlength=S) / len(states)
    moves = np.zeros((S, A, S))
    moves[np.arange(S), :, np.arange(S)] = 1.0
    world = TrialWorld(
        moves, (values, probabilities), 1, start, name=f"research.worlds.incentives:cost={cost}"
    )
    shares = np.bincount(actions, minlength=A) / len(actions)
    world.people = np.tile(shares, (S, 1))
    world.log = Episodes(
        np.stack([states, states], axis=1),
        actions[:, np.newaxis],
        (came * worth[actions])[:, np.newaxis],
        user_ids=list(range(len(states))),
    )
    return world


@cache
def _participants() -> tuple[Any, Any, Any]:
    """States, actions, and whether they came, of those of whom all of it is known."""
    data = _needed("incentives", "causaldata").thornton_hiv.load_pandas().data
    columns = {n: data[n].to_numpy(dtype=float) for n in ("got", "distvct", "tinc", "age")}
    known = np.all([np.isfinite(column) for column in columns.values()], axis=0)
    got, distance, paid, age = (column[known] for column in columns.values())
    near, old = np.digitize(distance, _DISTANCES), np.digitize(age, _AGES)
    states = near * (len(_AGES) + 1) + old
    return states, np.digitize(paid, _LEVELS, right=True), got


def skill_teaching(horizon: int = 40) -> ImportedWorld:
    """A tutor who asks and hints: two skills, from the planning competition of 2011.

    State:
        For each of two skills whether a student is at medium and at high proficiency, and what the
        tutor did in the turn before; 12 booleans, of which 63 combinations can be reached. Every
        other step is the student's.
    Actions:
        Nothing, a question or a hint about one of the skills: 5. Hints help up to medium
        proficiency only; a wrong answer can cost it; unused skills fade.
    Reward:
        In every step the weights of skills at high proficiency, less those of skills not even at
        medium. For agents rescaled to [0, 1]: see :class:`~tacit.gym.finite.ImportedWorld`.
    Optimum:
        66.265 at 40 steps, uniform 30.548.
    Source:
        SkillTeaching of IPPC 2011 by T. Walsh, instance 1, in the packages rddlrepository and
        pyRDDLGym. Its table is built once in a process, exactly.
    """
    from tacit.gym.finite import ImportedWorld
    from tacit.tabular.model import FiniteModel

    H = whole_number("horizon", horizon)
    P, paid = _skill_table()
    S, A = paid.shape
    levels, index = np.unique(np.append(paid.ravel(), 0.0), return_inverse=True)
    offset, scale = float(levels[0]), float(levels[-1] - levels[0])
    probabilities = np.zeros((S * A, len(levels)))
    probabilities[np.arange(S * A), index[:-1]] = 1.0
    model = FiniteModel(
        transitions=P[np.newaxis],
        reward_probabilities=probabilities.reshape(1, S, A, len(levels)),
        reward_values=np.clip((levels - offset) / scale, 0.0, 1.0),
        start=np.eye(S)[0],
        horizon=H,
    )
    return ImportedWorld(model, f"research.worlds.skill_teaching:horizon={H}", offset, scale)


@cache
def _skill_table() -> tuple[Floats, Floats]:
    """P (S, A, S) and rewards (S, A) of the states that can be reached, the first being the start.

    Given a state and an action, each boolean is drawn by itself: a rule's value, when every
    Bernoulli variable in it is replaced by its probability, is the probability of the boolean.
    """
    simulator, actions = _simulator()
    names = list(simulator.rddl.next_state)
    shapes = {name: np.shape(simulator.subs[name]) for name in names}
    start = tuple(bool(v) for name in names for v in np.ravel(simulator.subs[name]))
    states, moves, paid = [start], [], []
    seen = {start: 0}
    for state in states:
        for action in actions:
            values, place = iter(state), dict(action)
            for name in names:
                size = int(np.prod(shapes[name]))
                flags = np.array(list(itertools.islice(values, size))).reshape(shapes[name])
                place[name] = flags
            simulator.subs.update(place)
            subs = simulator.subs
            chances = {cpf: simulator._sample(rule, subs) for cpf, rule, _ in simulator.cpfs}
            paid.append(float(simulator._sample(simulator.rddl.reward, subs)))
            true = np.concatenate(
                [
                    np.ravel(np.broadcast_to(chances[simulator.rddl.next_state[n]], shapes[n]))
                    for n in names
                ]
            ).astype(np.float64)
            for after, probability in _products(true):
                if after not in seen:
                    seen[after] = len(states)
                    states.append(after)
                moves.append((seen[state], len(paid) - 1, seen[after], probability))
    S, A = len(states), len(actions)
    P = np.zeros((S * A, S))
    for _, row, target, probability in moves:
        P[row, target] += probability
    return P.reshape(S, A, S), np.array(paid).reshape(S, A)


def _products(true: Floats) -> list[tuple[tuple[bool, ...], float]]:
    """All combinations of independent booleans that can be, with their probabilities."""
    found: list[tuple[tuple[bool, ...], float]] = [((), 1.0)]
    for p in true.tolist():
        sides = [(True, p), (False, 1.0 - p)]
        found = [((*flags, v), q * r) for flags, q in found for v, r in sides if r > 0.0]
    return found


def _simulator() -> tuple[Any, list[dict[str, Any]]]:
    """Rules whose random variables are their probabilities; and what can be done at a step."""
    gym = _needed("skill_teaching", "pyRDDLGym")
    _needed("skill_teaching", "rddlrepository")
    # It talks while it reads.
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        model = gym.make("SkillTeaching_MDP_ippc2011", "1").model
    base: Any = import_module("pyRDDLGym.core.simulator").RDDLSimulator

    class Chances(base):  # type: ignore[misc]
        def _sample_bernoulli(self, expr: Any, subs: Any) -> Any:
            return self._sample(expr.args[0], subs)

        def _sample_kron_delta(self, expr: Any, subs: Any) -> Any:
            return np.asarray(self._sample(expr.args[0], subs), dtype=np.float64)

    simulator = Chances(model, keep_tensors=True)
    simulator.reset()
    none = {n: np.zeros(np.shape(simulator.subs[n]), dtype=bool) for n in model.action_fluents}
    actions = [none]
    for name, flags in none.items():
        for place in range(flags.size):
            chosen = np.zeros(flags.size, dtype=bool)
            chosen[place] = True
            actions.append(none | {name: chosen.reshape(flags.shape)})
    return simulator, actions


def _needed(world: str, package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise InvalidArgument(
            f"{world} needs the package {package}: pip install {package}"
        ) from None
