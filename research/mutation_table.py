"""Which planted privacy bugs the audit finds, and by which check; and how often it cries wolf.

``python -m research.mutation_table`` audits every bug of
:mod:`research.planted_bugs` and prints a table in Markdown. With ``--false-alarms 200`` it
audits an agent without a bug that often, each time with other users and other noise, and counts
the audits that fail. How tight audits are is in :mod:`research.audit_table`.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from research.planted.agents import Planted
from research.planted_bugs import BUGS, HOSTS, audit
from research.study import Parser, whole
from tacit.simulation.run import progress_bar


@dataclass(frozen=True)
class FoundBug:
    """What came of one planted bug.

    Attributes:
        planted: the bug, and the agent it was planted in.
        failed: the names of the checks that found it.
    """

    planted: Planted
    failed: tuple[str, ...]

    @property
    def caught(self) -> bool:
        """Whether those that must find it did."""
        return bool(self.failed) and set(self.planted.caught) <= set(self.failed)


def rows(bugs: Sequence[Planted] = BUGS) -> Iterator[FoundBug]:
    """All bugs, audited one after the other."""
    for planted in bugs:
        # Some bugs talk.
        with contextlib.redirect_stderr(io.StringIO()):
            failed = audit(planted).failed
        yield FoundBug(planted, failed)


HEADER = "| planted bug | what an attacker gains | agents | found by |\n|---|---|---|---|"


def lines(made: Sequence[FoundBug]) -> Iterator[str]:
    """A line in Markdown for each bug, with all agents that it was planted in."""
    for bug in dict.fromkeys(row.planted.bug for row in made):
        same = [row for row in made if row.planted.bug is bug]
        first = same[0].planted
        agents = "; ".join(row.planted.host for row in same)
        checks = ", ".join(dict.fromkeys(name for row in same for name in row.failed))
        missed = "; ".join(row.planted.host for row in same if not row.caught)
        found = f"{checks}; NOT AS IT SHOULD in {missed}" if missed else checks
        yield f"| {first.what} | {first.gain} | {agents} | {found} |"


def false_alarms(audits: int, host: str = "UCBVI", runs: int = 25) -> list[tuple[int, str]]:
    """Audits of an agent without a bug that failed: the seed, and what was found.

    Every audit has users, neighbours and noise of its own.
    """
    from tacit.testing.audit_agent import audit_agent

    found = []
    for seed in range(audits):
        known = HOSTS[host]
        result = audit_agent(
            known.make(),
            known.world(),
            users=160,
            runs=runs,
            rounds=5,
            seed=seed,
            behaviour=False,
            progress=False,
        )
        found += [(seed, words) for words in result.failures[:1]]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns how many bugs were not found, or how many alarms were false."""
    parser = Parser("research.mutation_table", __doc__)
    parser.add_argument(
        "--false-alarms",
        type=whole(1),
        metavar="N",
        help="audit an agent without a bug N times instead, and count the audits that fail",
    )
    chosen = parser.parse_args(arguments)
    if chosen.false_alarms is not None:
        alarms = false_alarms(chosen.false_alarms)
        for seed, words in alarms:
            print(f"seed {seed}: {words}")
        print(f"{len(alarms)} false alarms in {chosen.false_alarms} audits")
        return len(alarms)
    made = []
    with progress_bar("planted bugs", len(BUGS), True) as advance:
        for row in rows():
            made.append(row)
            advance(1)
    print("\n".join([HEADER, *lines(made)]))
    caught, kinds = sum(row.caught for row in made), len({row.planted.bug for row in made})
    print(
        f"\n{caught} of {len(made)} planted bugs found: {kinds} different ones, in "
        f"{len({row.planted.host for row in made})} agents."
    )
    return len(made) - caught


if __name__ == "__main__":
    sys.exit(min(main(), 1))
