"""One run under fire: exceptions at any line and threads lose and double nobody.

``python -m research.campaign`` does all of it; here is some of each, and code that is broken,
which it must notice.
"""

import os
import signal

import pytest

from research.campaign import library as owner
from research.campaign.library import CALLS, KINDS, Run
from tacit.core import intake
from tacit.privacy.errors import Busy
from tacit.store import runs

pytestmark = pytest.mark.filterwarnings("ignore:epsilon is 300000")


def check(tally):
    assert tally.clean, tally.problems


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", CALLS)
def test_a_run_goes_on_after_an_exception_at_some_lines(what, kind):
    tally = owner.lines(what, kind, stride=1201)
    check(tally)
    assert tally.hit > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", CALLS)
def test_a_run_goes_on_after_an_exception_at_any_line(what, kind):
    check(owner.lines(what, kind))


def test_threads_take_turns():
    check(owner.threads(4, 6, "memory"))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_many_threads(count, kind):
    check(owner.threads(count, 200, kind))


def test_who_was_taken_must_be_said(monkeypatch):
    right = intake._say_who
    monkeypatch.setattr(intake, "_say_who", lambda error, _, given: right(error, 0, given))
    assert owner.lines("learn", "file", stride=601).wrong_books


def test_episodes_must_be_erased(monkeypatch):
    monkeypatch.setattr(runs, "erase", lambda *_: None)
    assert not owner.lines("publish", "file", stride=2003).clean


def test_a_call_from_a_signal_handler_is_refused_and_does_no_harm(tmp_path):
    run, caught = Run(tmp_path, 12), list[BaseException]()
    agent = run.open()

    def handler(*_):
        for call in (agent.step, lambda: agent.publish(tmp_path / "x")):
            try:
                call()
            except Busy as error:
                caught.append(error)

    right, before = agent._run.curator.price, signal.signal(signal.SIGUSR1, handler)

    def price(release):
        os.kill(os.getpid(), signal.SIGUSR1)
        return right(release)

    agent._run.curator.price = price
    try:
        run.learn(agent, 5)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(caught) == 2
    assert "signal handler" in str(caught[0])
    assert (agent.taken, agent.releases, agent.block_users) == (5, 1, 3)
    assert not (tmp_path / "x").exists()
