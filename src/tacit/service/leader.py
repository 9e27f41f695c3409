"""The loop that moves blocks on. Any process may run it; a lease saves the others the work."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tacit.privacy.errors import TacitError
from tacit.service.facts import trouble

if TYPE_CHECKING:
    from tacit.core.agent import Agent

_PAUSE, _LONGEST = 0.25, 10.0


class Loop:
    """Thread that moves the blocks of a run on, whatever a step raises.

    Args:
        agent: Of the run; used by this thread alone.
        heard: Called after a change of the store.
        heir: Makes the agent of the next run, if there is to be one.
    """

    def __init__(
        self, agent: Agent, heard: Callable[[], None], heir: Callable[[Agent], Agent] | None = None
    ) -> None:
        self._agent, self._heard, self._heir = agent, heard, heir
        self._ended, self._name = threading.Event(), secrets.token_hex(8)
        self.leads = False
        """Whether this process holds the lease."""
        self._thread = threading.Thread(target=self._run, name="tacit-curator", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends after the step that it is in."""
        self._ended.set()
        self._thread.join(timeout=60.0)

    def _run(self) -> None:
        pause = _PAUSE
        while not self._ended.wait(pause):
            try:
                self._turn()
                pause = _PAUSE
            except Exception as error:
                # The store is as before or after a commit, and the next turn goes on from there.
                said = trouble("step", error)
                with contextlib.suppress(TacitError):
                    self._agent.report_problem(said)
                self._heard()
                pause = min(2.0 * pause, _LONGEST)

    def _turn(self) -> None:
        self.leads = self._agent.lead(self._name)
        while self.leads and not self._ended.is_set() and self._agent.step():
            self._heard()
            self.leads = self._agent.lead(self._name)
        run = self._agent.run_row()
        if self._heir and (run.succeeded or (self.leads and run.served >= run.users)):
            self._agent = self._heir(self._agent)
            self._heard()
        if self.leads and self._agent.problems():
            self._agent.resolve_problem()
            self._heard()
