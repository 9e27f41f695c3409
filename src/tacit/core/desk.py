"""Where an agent takes users in, and a block's way through the gate, whatever comes between.

A user is taken by one assignment: of how many wait, or of how many blocks the curator has. A block
that is in is a :class:`~tacit.core.session.Turn` until it is through, which is one assignment too.
So after an exception at any line it is known where everybody is, and :meth:`Desk._settle` goes on
from there, at once or at the next call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.core.algorithm import Algorithm
from tacit.core.asks import State
from tacit.core.episodes import Episodes
from tacit.core.receipt import Receipt, who_waits
from tacit.core.rounds import Gate
from tacit.core.session import Ids, Moment, Session, Turn
from tacit.core.vector_episodes import VectorEpisodes
from tacit.privacy.curator import Curator
from tacit.privacy.curator import JointCurator
from tacit.privacy.curator import JointStream
from tacit.privacy.curators.saves import refresh
from tacit.privacy.errors import BudgetExceeded, HorizonExceeded
from tacit.privacy.owner import Uncopyable, new_lock, refuse_within
from tacit.privacy.statistic import Block

DATA = (Episodes, VectorEpisodes, Block)


class Desk(Uncopyable):
    """Whom an agent has taken, and what is done with them, one call at a time."""

    _curator: Curator

    def __init__(self, algorithm: Algorithm[Any]) -> None:
        self._algorithm = algorithm
        self._session = Session(algorithm)
        self._stream: JointStream | None = None
        self._lock = new_lock()
        # The algorithm from before a save was loaded, until all of that is done.
        self._undo: Moment | None = None

    def _take_all(self, what: str, given: Any, call: Callable[[bool], Receipt]) -> Receipt:
        """A call that takes users: alone, and if it fails the error says whom not to give again.

        It is told whether only users of the policy that serves teach anything.
        """
        refuse_within(self._lock, what)
        before = after = None
        said = together = False
        try:
            with self._lock:
                self._settle()
                self._tidy()
                self._check_not_succeeded()
                together = self._algorithm.masked
                before = self._taken()
                try:
                    receipt = call(together)
                    self._tidy()
                    after = self._taken()
                    return receipt
                except BaseException as error:
                    _say_who(error, self._taken() - before, given, together)
                    said = True
                    raise
        except BaseException as error:
            # Also of what is raised when all is done, and by the lines around it.
            if not said:
                now = self._taken() if after is None else after
                _say_who(error, 0 if before is None else now - before, given, together)
            raise

    def _check_not_succeeded(self) -> None:
        if self._session.succeeded:
            raise HorizonExceeded("this agent has a successor: give users to that one")

    def _taken(self) -> int:
        return self._session.taken(self._curator.entered)

    def _room(self) -> int:
        return max(0, self._algorithm.block_users - self._session.waiting.users)

    def _take(self, part: Block, user_ids: Ids, room: int) -> Receipt:
        """Users of the current block; when it is full it goes through the gate."""
        waiting = self._session.waiting
        if part.users < room:
            waiting.add(part, user_ids)
            return who_waits(part.users, self._algorithm.policy.version)
        before, users = waiting.users, waiting.users + part.users
        waiting.through = self._algorithm.served + users
        block, ids = waiting.joined(part, user_ids)
        # Until the block is in, those who wait for it go on waiting.
        number = self._curator.add(block, ids)
        self._ask(number, users)
        return self._through(before, part.users)

    def _close(self) -> None:
        """Ends the block early: whoever waits goes through the gate."""
        waiting = self._session.waiting
        if waiting.users:
            waiting.through = self._algorithm.served + waiting.users
            users = waiting.users
            number = self._curator.add(*waiting.everybody())
            self._ask(number, users)

    def _through(self, before: int, users: int) -> Receipt:
        """What became of a block of ``before`` users who waited, and ``users`` who came now."""
        kept = self._curator.participants.kept
        out = [0, 0]
        if kept is not None:
            out = [int(np.count_nonzero(~rows)) for rows in (kept[:before], kept[before:])]
        algorithm = self._algorithm
        new = () if algorithm.pinned is not None else (algorithm.policy.version,)
        return Receipt(users, users - out[1], 0, 0, out[1], algorithm.policy.version, new, out[0])

    def _ask(self, number: int, users: int, *, resumed: bool = False) -> None:
        """All questions about a block, and the next policy.

        Whatever is raised, its raw data is not kept by chance, and its users are not asked again:
        they may have paid for a release that nobody will see.
        """
        session = self._session
        turn = Turn(Moment(self._algorithm, asked=0), users)
        session.turn = turn
        session.waiting.clear(self._curator.entered)
        try:
            early = self._go_through(number, turn, resumed=resumed)
        except BaseException:
            self._settle(finish=False)
            raise
        self._forget()
        if early is not None:
            raise early

    def _go_through(self, number: int, turn: Turn, *, resumed: bool) -> BaseException | None:
        algorithm, session, curator = self._algorithm, self._session, self._curator
        algorithm.asked = turn.users
        gate = Gate(curator, self._stream, number, algorithm.privacy)
        early = session.round.run(gate, session.answers, resumed=resumed)
        turn.answered = True
        told = algorithm.policy.version, turn.users, session.round.asked, session.answers
        running, read = self._stream is not None, algorithm.monitored
        algorithm.advance(turn.users)
        session.record.hear(*told, running, read)
        session.end_round(curator.releases)
        return early

    def _settle(self, *, finish: bool = True) -> None:
        """Does what a call that was cut off left to do; it may be cut off itself, and called again.

        A block whose algorithm has all its answers gets its policy now, from the record (if not
        ``finish``, later). One that has not is lost: its users are served, and may have paid.
        """
        session, curator = self._session, self._curator
        up_to_date = session.turn is None and session.waiting.block >= curator.entered
        if up_to_date and self._undo is None:
            if not session.answers:
                self._forget()
            elif finish:
                # A load was cut off before it went on with the round that it found.
                self._catch_up()
            return
        self._put_back()
        turn, waiting = session.turn, session.waiting
        if waiting.block < curator.entered:
            if turn is None:
                # Nobody asked the users of a block that is in.
                self._algorithm.served = waiting.through
            waiting.clear(curator.entered)
        if turn is None:
            pass
        elif not turn.answered:
            session.lose(turn, curator.releases)
        elif finish:
            # Once: what fails twice would fail for ever.
            turn.answered = False
            session.again(turn)
            self._go_through(curator.entered - 1, turn, resumed=True)
        else:
            turn.before.put_back()
            self._algorithm.served = turn.before.served + turn.users
            return
        self._forget()

    def _put_back(self) -> None:
        """Undoes a load that was refused."""
        if self._undo is not None:
            self._undo.put_back()
            self._undo = None

    def _between(self, *, finish: bool = False) -> None:
        """Before anything is read: no load is half undone, unless this comes from within a call.

        With ``finish`` also no block waits for its policy: what devices are to report next may
        depend on it.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]
            return
        if self._undo is not None or (finish and self._session.turn is not None):
            with self._lock:
                self._settle(finish=finish)

    def _forget(self) -> None:
        """Drops blocks that nobody asks again."""
        for number in self._curator.blocks:
            self._curator.forget(number)

    def _tidy(self) -> None:
        """Takes what was forgotten out of the autosave too."""
        if isinstance(self._curator, JointCurator):
            refresh(self._curator)

    def _catch_up(self) -> None:
        """Finishes the round that a crash came into."""
        curator, session = self._curator, self._session
        if isinstance(curator, JointCurator) and session.answers:
            # A crash can make users pay for an answer that nobody saw. If they cannot pay for what
            # an algorithm needs, their block is lost and the run goes on.
            with contextlib.suppress(BudgetExceeded):
                newest = max(curator.blocks, default=-1)
                self._ask(newest, self._algorithm.block_users, resumed=True)
        else:
            self._algorithm.asked = 0

    def _dump(self) -> State:
        return self._session.dump(self._curator.participants)


def _say_who(error: BaseException, taken: int, given: Any, together: bool) -> None:
    """Tells whoever catches an error of ``learn`` whom not to give again.

    If they are taken ``together``, those who are not are of retired versions, and of no use.
    Somebody's own error may not let itself be written to; then ``agent.taken`` says it.
    """
    with contextlib.suppress(Exception):
        users = 0 if not taken else given.users if isinstance(given, DATA) else len(given)
        taken = users if together else taken
        error.users_taken = taken  # type: ignore[attr-defined]
        if taken:
            rest = f"; go on with the rest: data.take(slice({taken}, None))"
            error.add_note(
                f"{taken} of these {users} users were taken and must not be given again"
                + (rest if taken < users else "")
            )
