"""The life of policies: published, rolled back to, pinned, and gone on from after the last user."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Self

from tacit.core.desk import Desk
from tacit.core.public_file import facts_of, publish_with
from tacit.core.setting import Setting
from tacit.privacy.arguments import flag
from tacit.privacy.curator import Curator
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.ledger.ledger import witness_of
from tacit.privacy.models import JointDP, LocalDP, Privacy
from tacit.privacy.owner import alone


class Versions(Desk):
    """What an agent does with policies once they are planned."""

    chosen: str = ""
    """Why it is this one, where none was named: see :func:`tacit.which_agent.agent`."""

    @alone
    def publish(
        self, path: str | os.PathLike[str], *, greedy: bool = False, force: bool = False
    ) -> None:
        """Writes the public policy; any device with NumPy can load it, or a JSON reader.

        The file says what is guaranteed to whom, which agent, spec and release of Tacit made it and
        when, and has a hash of all that it holds (:func:`tacit.published.about`).

        Args:
            path: of the file; the JSON form if it ends in .json.
            greedy: the best policy for what is known, in place of the one that serves and explores.
            force: also if noise is simulated (``noise_seed``) and protects nobody. The file says
                so.

        With a ledger, the file has the number and the hash of the ledger's last line: it is a
        witness that an older copy lacks lines (``tacit ledger verify --expect policy.npz``).
        """
        curator, guarantee = self._curator, self._curator.guarantee
        if guarantee is not None and guarantee.simulation_only and not force:
            raise InvalidArgument(
                "this agent is a simulation (noise_seed) and its policy protects nobody who was "
                "real: leave noise_seed out, or give force=True"
            )
        facts = facts_of(self._algorithm, guarantee)
        if isinstance(curator, JointCurator) and curator.accounts.ledger is not None:
            facts["ledger_line"], facts["ledger_head"] = witness_of(curator.accounts.ledger)
        algorithm = self._algorithm
        publish_with(algorithm.greedy_policy if greedy else algorithm.policy, path, facts)

    @alone
    def roll_back(self, policy: Any, *, pin: bool = False) -> None:
        """Serves a policy again that this agent published before.

        Its users are counted as its own, under its version. Those who wait followed another one:
        their block ends early and is released first, so what they teach is not lost. The next
        release plans and publishes a new policy, unless this one is pinned.

        Args:
            policy: an older one, as ``tacit.Policy.load("policy-12.npz")``.
            pin: whether it goes on serving after releases, until :meth:`unpin`.
        """
        self._settle()
        newest = self._algorithm.newest
        version = getattr(policy, "version", -1)
        if not 0 <= version <= newest:
            raise InvalidArgument(
                f"policy must be one that was published, of version 0 to {newest}, got {policy!r}"
            )
        self._algorithm.reinstate(policy)
        self._close()
        self._session.reinstate(policy, flag("pin", pin))
        self._tidy()

    @alone
    def unpin(self) -> None:
        """After the next release a new policy serves again."""
        self._algorithm.pinned = None

    @alone
    def successor(self, /, users: int, privacy: Privacy | None = None, **serving: Any) -> Self:
        """The agent for the next users, which begins with all that this one was told.

        What was released is public, with how noisy it is, so starting from it costs nobody
        anything. New users pay for what is released of them alone. Whoever took part here with an
        id is known there: nobody contributes more episodes than declared, in both together. So
        whoever is in both is promised what the model with the larger budget promises. On a ledger
        of people (:meth:`tacit.Ledger.create_for_people`) that holds for other agents as well.

        Who waits for the rest of a block is released first, and this agent takes nobody any more
        and has no other successor. Its ledger records that, and refuses all its saves from then on.
        Without a ledger only its autosave knows: destroy every other save, as whoever is in a run
        that goes on from one is not known to the successor. Versions are counted on. A save of the
        successor is resumed by an agent that is made with its arguments, like any other.

        Args:
            users: how many it is declared for.
            privacy: its model; the same by default, of which epsilon and delta may change.
            **serving: ``schedule``, ``seed``, ``noise_seed``, ``ledger`` (a file of its own, or a
                ledger of people), ``autosave``.

        Raises:
            InvalidArgument: What its algorithm knows is no start for another one, or the model is
                another; docs/production.md has a list.
            HorizonExceeded: It has a successor.
            DoubleSpend: Another process goes on with this run.
        """
        names = {"schedule", "seed", "noise_seed", "ledger", "autosave"}
        if wrong := sorted(set(serving) - names):
            raise InvalidArgument(f"a successor has no option {', '.join(wrong)}")
        self._settle()
        self._check_not_succeeded()
        old = self._algorithm
        privacy = old.privacy if privacy is None else privacy
        _check_alike(old.privacy, privacy)
        given = serving.pop("schedule", "auto"), serving.pop("seed", old.setting.seed)
        setting = Setting(old.spec, users, privacy, *given)
        algorithm = type(old)(setting, old.options)
        algorithm.begin_anew(old)  # what is refused is, before anybody is released
        self._close()
        algorithm.inherit(old)
        self._tidy()
        made: Self = type(self)(algorithm, **serving, predecessor=self)  # type: ignore[call-arg]
        made.chosen = self.chosen
        return made

    def _hand_over(self, heir: Curator) -> None:
        """Ends this run, before its successor writes anything from which a run could go on."""
        curator = self._curator
        if isinstance(curator, JointCurator) and curator.accounts.ledger is not None:
            known = heir.accounts.ledger if isinstance(heir, JointCurator) else None
            label = "without a ledger" if known is None else known.id
            curator.accounts.ask(lambda ledger: ledger.record_succession(label))
        self._session.succeeded = True
        if isinstance(curator, JointCurator) and not curator.accounts.ledger and curator.autosave:
            curator.save(curator.autosave)


def _check_alike(old: Privacy, new: Privacy) -> None:
    """Refuses a model whose budget does not compare with another's, episode by episode."""
    kind = type(new) is type(old) and new.needs_l1 == old.needs_l1
    if kind and isinstance(new, (JointDP, LocalDP)) and isinstance(old, (JointDP, LocalDP)):
        kind = replace(new, epsilon=old.epsilon, delta=old.delta) == old
    if not kind:
        raise InvalidArgument(
            f"privacy must be {old!r} with another epsilon or delta at most, got {new!r}: what "
            "users of both are promised would not be known"
        )
