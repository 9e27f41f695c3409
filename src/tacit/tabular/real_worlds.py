"""Small worlds that others wrote, made of their data or their rules: a trial, and a tutor."""

from __future__ import annotations

import contextlib
import io
import itertools
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.episodes import Episodes
from tacit.core.sizes import Floats, check_size
from tacit.finite.policy import Policy
from tacit.privacy.arguments import checked_number
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.world import TabularWorld

if TYPE_CHECKING:
    from tacit.tabular.gym import ImportedWorld

# Bounds of the levels of incentives, in dollars, and what is paid in each on average.
_LEVELS = (0.0, 0.5, 1.2)
_PAID = (0.0, 0.3, 0.9, 2.1)
_DISTANCES, _AGES = (1.0, 2.0), (25.0, 40.0)


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
        causaldata, install ``tacit[worlds]``. 2,829 of 4,820 people have all that is needed.
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
    world = TrialWorld(moves, (values, probabilities), 1, start, name=f"incentives:cost={cost}")
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
        medium. For agents rescaled to [0, 1]: see :class:`~tacit.tabular.gym.ImportedWorld`.
    Optimum:
        66.265 at 40 steps, uniform 30.548.
    Source:
        SkillTeaching of IPPC 2011 by T. Walsh, instance 1, in the packages rddlrepository and
        pyRDDLGym; install ``tacit[worlds]``. Its table is built once in a process, exactly.
    """
    from tacit.finite.model import FiniteModel
    from tacit.tabular.gym import ImportedWorld

    H = check_size("horizon", horizon)
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
    return ImportedWorld(model, f"skill_teaching:horizon={H}", offset, scale)


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
            f"{world} needs the package {package}: pip install 'tacit[worlds]'"
        ) from None
