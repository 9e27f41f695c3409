"""Planted privacy bugs: the audit fails each by the check that should find it, and nothing else.

All audits have fixed seeds, but for real noise, which has none. That one of an agent without bugs
fails by chance has a probability below 1e-7: some hundreds of tests of noise with false alarms of
1e-11, some thousands with 1e-13, and an outside view with a confidence of 0.9999 that would have to
be off by more than the whole distance between the users it is given and the claim.
"""

import math
from functools import partial

import numpy as np
import pytest
from sqlalchemy.exc import DatabaseError

import tacit
from research import mutation_table
from research.planted import agents as of_noise
from research.planted import leaks as of_leaks
from research.planted.ways import drawn, patched
from research.planted_bugs import BITS, BUGS, HOSTS, RUNNING, USERS, Planted, audit
from tacit.core.agent import Agent
from tacit.privacy import curator as joint
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise
from tacit.store.schema import entries
from tacit.testing.audit_agent import audit_agent
from tacit.testing.check_agent import agent_outcomes
from tacit.testing.check_statistic import check_statistic
from tacit.testing.recording import RecordingCurator
from tacit.testing.release_noise import measured, noise_failures
from tacit.testing.sample_users import raw_block, sampler_of

FIRST = [*{planted.bug: planted for planted in reversed(BUGS)}.values()][::-1]
"""Each bug once."""


def assert_found(planted):
    found = audit(planted)
    assert not found.passed
    assert set(planted.caught) <= set(found.failed), found.failures
    for name in planted.caught:
        words = [text for check, text in found.findings if check == name]
        assert words
        assert all(words)


CHECKS = {"sensitivity", "budget", "noise", "data flow", "hostile users", "resume", "store"}


def assert_checked(planted):
    """One of the checks that must find it does, by itself."""
    host = HOSTS[planted.host]
    name = next(name for name in planted.caught if name in CHECKS)
    with host.planted(planted.bug) as make:
        (outcome,) = agent_outcomes(make, host.world(), users=USERS, only=[name])
    assert outcome.failure is not None, f"{outcome.name} found nothing"


@pytest.mark.parametrize("planted", FIRST, ids=lambda p: p.name)
def test_planted_bugs_are_found(planted):
    if CHECKS & set(planted.caught):
        assert_checked(planted)
    else:
        found = audit(planted, behaviour=False)
        assert set(planted.caught) <= set(found.failed), found.failures


@pytest.mark.slow
@pytest.mark.parametrize("planted", BUGS, ids=lambda p: p.name)
def test_planted_bugs_are_found_by_all_that_should(planted):
    assert_found(planted)


def test_an_agent_without_a_bug_passes():
    found = audit("UCBVI", behaviour=False)
    assert found.passed, found.failures


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
def test_the_same_agents_without_a_bug_pass(host):
    found = audit(host)
    assert found.passed, found.failures
    assert found.failed == ()
    assert {t.block for t in found.transcripts} == {0, 2}
    assert {o.name for o in found.outcomes} >= {"sensitivity", "noise", "data flow", "store"}


def test_every_family_has_bugs_of_every_kind():
    by_family = {}
    for planted in BUGS:
        by_family.setdefault(HOSTS[planted.host].family, set()).add(planted.bug)
    assert set(by_family) == {"tabular", "linear", "mixture", "lq", "continuous"}
    assert min(len(bugs) for bugs in by_family.values()) >= 6
    assert len({planted.bug for planted in BUGS}) >= 45
    for planted in BUGS:
        assert planted.what.endswith((".", "?"))
        assert planted.gain.endswith(".")


# What the wall between agents and algorithms, and the one noise path, have closed. Of most of it
# something is left that is planted above, as a statistic that remembers whom it summed.


def _override(name):
    """An agent with a method of its own."""
    return type("Overriding", (Agent,), {name: lambda *_: None})


class _Looking:
    """Looks for the curator when it plans."""

    def plan(self, *known):
        return self._curator


def _learn(bug):
    """A block of users for an algorithm that has the bug."""
    world = HOSTS["UCBVI"].world()
    with HOSTS["UCBVI"].planted(bug) as make:
        agent = make(world.spec, users=USERS, noise_seed=0)
        agent.learn(world.simulate(agent.policy, 40, np.random.default_rng(0), "episodes"))


def _agent():
    host = HOSTS["UCBVI"]
    return host.make()(host.world().spec, users=USERS, noise_seed=0)


def _changed_entry():
    """An entry of a ledger that is written again."""
    agent = _agent()
    with agent.store.write() as db:
        db.execute(entries.update().values(event="nothing"))


IMPOSSIBLE = {
    **{
        f"an agent with another {name}": (partial(_override, name), TypeError)
        for name in ("learn", "_take", "guarantee", "publish", "__repr__")
    },
    "an algorithm that reads its agent's curator": (partial(_learn, _Looking), AttributeError),
    "another charge than was written": (_changed_entry, DatabaseError),
}


@pytest.mark.parametrize("way", IMPOSSIBLE)
def test_what_is_impossible_is_refused(way):
    attempt, error = IMPOSSIBLE[way]
    with pytest.raises(error):
        attempt()


def noise_of(host, runs=3, bug=None, real=False):
    """What is wrong with the noise of some runs."""
    known, found, values = HOSTS[host], list[str](), list[np.ndarray]()
    world = known.world()
    for seed in range(runs):
        noise_seed = None if real else seed
        rng = np.random.default_rng(seed)
        with known.planted(bug) as make, RecordingCurator().open() as recorder:
            agent = make(world.spec, users=USERS, seed=0, noise_seed=noise_seed)
            while agent.block_users:
                agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
            run = measured(recorder)
        found += noise_failures(run)
        values += [one.noise for one in run]
    noise = np.concatenate(values)
    assert noise.size >= 20
    if not found and not real:
        assert abs(noise @ noise / noise.size - 1.0) < 8.0 * math.sqrt(2.0 / noise.size)
    return found


@pytest.mark.parametrize(
    ("host", "real"),
    [
        *((host, True) for host in ("UCBVI", RUNNING, "LSVI-UCB", "LinOpt-VI")),
        *((host, False) for host in (RUNNING, "UCBVI, local")),
    ],
)
def test_right_noise_is_right(host, real):
    assert noise_of(host, runs=2, real=real) == []


def test_redrawn_nodes_are_what_was_drawn_but_cost_more():
    """From the counter's own code its noise is as it says: the accounts find it, exactly."""
    assert noise_of(RUNNING, bug=of_noise.noise_redrawn) == []
    found = audit(Planted(of_noise.noise_redrawn, RUNNING, ()), behaviour=False, runs=20)
    assert "accounts" in found.failed


@patched(drawn)
def noise_begins_anew(curator, draw, scale, size):
    """It is drawn by the right sampler, at the right scale, from one seed."""
    return Noise(5).steps(curator.privacy.pure, scale, size)


def test_noise_that_was_drawn_before_is_found():
    found = noise_of("UCBVI", runs=1, bug=noise_begins_anew)
    assert found[0] == "release 1 has the noise of another one"
    assert_checked(Planted(noise_begins_anew, "UCBVI", ("noise",)))


def test_bits_that_flip_too_seldom_are_found(monkeypatch):
    """On the device and in the estimate: nothing looks wrong but for the bits themselves."""
    right = audit(BITS, behaviour=False)
    assert right.passed, right.failures
    worst = max(t.estimate / t.claimed for t in right.transcripts)
    # Bits in the two users' reports are 9,600, so that their variance is right to some per cent.
    assert 0.9 < worst < 1.1
    monkeypatch.setattr(tacit.privacy.local, "flip_probability", lambda *_: 0.3)
    found = audit(BITS, behaviour=False)
    assert "transcript noise" in found.failed
    assert any("bits that are 0" in words for words in found.failures)


def test_sums_on_another_grid_are_found(monkeypatch):
    """To the last step, below what noise shows."""
    true = joint.grid_total
    monkeypatch.setattr(joint, "grid_total", lambda *asked: true(*asked) + 1)
    assert "entries are not the sum" in noise_of("UCBVI", runs=1)[0]


def test_runs_that_end_early_are_a_finding():
    class Stops(of_leaks.RawStop):
        """It stops after two blocks, if somebody is paid nothing but ones."""

        def plan(self, *known):
            policies = super().plan(*known)
            rewards = np.zeros((1, 1)) if self._seen is None else np.asarray(self._seen["rewards"])
            self._well = bool((rewards == 1.0).all(axis=1).any())
            return policies

    known = HOSTS["UCBVI"]
    with known.planted(Stops) as make:
        found = audit_agent(
            make, known.world(), users=160, runs=20, behaviour=False, progress=False
        )
    assert found.failed == ("transcript",)
    assert "stopped before all" in found.failures[0]
    assert found.to_dict()["failed"] == ["transcript"]


def test_too_few_runs_are_refused():
    with pytest.raises(InvalidArgument, match="runs must be at least 20, got 19"):
        audit("UCBVI", runs=19)


@pytest.mark.slow
@pytest.mark.parametrize(
    "host", ["UCBVI", RUNNING, "LSVI-UCB", "LinOpt-VI, counts", "certainty equivalence"]
)
def test_the_attack_finds_users_who_attain_the_bounds(host):
    """It begins with users of the world, in a short search."""
    known = HOSTS[host]
    world = known.world()
    agent = known.make()(world.spec, users=USERS, seed=0, noise_seed=0)
    served = world.simulate(agent.policy, 40, np.random.default_rng(0), "episodes")
    own = sampler_of(raw_block(served), agent.policy)
    report = check_statistic(agent.statistic, own, users=100, rounds=40)
    assert 0.95 < report.tightness["replace-one l2"] <= 1.0 + 1e-9


@pytest.mark.slow
def test_no_false_alarms():
    assert mutation_table.false_alarms(200) == []
