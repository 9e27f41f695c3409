"""Tables of the stored results, for docs/results.md, docs/trials.md and the notes.

A page names a table between ``<!-- stored: NAME -->`` and ``<!-- end -->``. The command writes all
of them again, from the stored results alone; nothing is run.

    python -m research.results
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from research import audit_table, functional_curves, gymnasium, lq_orders, offline, trials
from research.studies import STUDIES
from research.study import amount, load, spread

ROOT = Path(__file__).parents[1]
PAGES = (
    ROOT / "docs" / "results.md",
    ROOT / "docs" / "trials.md",
    ROOT / "docs" / "simulators.md",
    *sorted((ROOT / "research" / "notes").glob("*.md")),
)
"""The pages that are written."""
_MARK = re.compile(r"<!-- stored: ([\w ]+) -->\n.*?<!-- end -->", re.DOTALL)


def _text(module: str) -> str:
    """A table that was stored as it was printed."""
    return str(load(module)["table"]["text"])


def _headed(head: str, lines: Iterable[str], names: int = 1) -> str:
    """Rows below a head, whose first columns are names."""
    columns = head.count("|") + 1
    rule = "|---" * names + "|---:" * (columns - names) + "|"
    return "\n".join([f"| {head} |", rule, *lines])


def _offline(kind: str, head: str, names: int) -> str:
    rows = {n: row for n, row in load("offline").items() if n.partition(",")[0] == kind}
    return _headed(head, [offline.line(name, row) for name, row in rows.items()], names)


def _audits() -> str:
    stored = load("audit_table")
    rows = [stored[agent]["text"] for agent in audit_table.agents() if agent in stored]
    head = "agent | joint | joint, pure | local | local, pure | randomised response"
    cells = [cell for row in rows for cell in row.strip("| ").split(" | ")[1:]]
    passed = f"{sum(cell != '-' for cell in cells)} audits of {len(rows)} agents passed."
    return _headed(head, rows) + f"\n\n{passed}"


def _suite() -> str:
    """Of what ``tacit sweep suite --json`` printed."""
    lines = []
    for world, kept in load("suite").items():
        for label, found in kept.items():
            agent, _, budget = label.partition(", ")
            named = f"{agent}: {found['algorithm']}" if agent == "auto" else agent
            cells = [world.rpartition("worlds.")[2], named, budget.removeprefix("epsilon ")]
            for name in ("users_to_90", "greedy_users_to_90", "regret"):
                cells.append(spread([run[name] for run in found["runs"]]))
            lines.append(f"| {' | '.join(cells)} | {amount(found['seconds_median'])} |")
    return _headed("world | agent | ε | users to 90 % | greedy | regret | seconds", lines, 3)


_COVERAGE = (
    "world | behaviour | method | all hold | best policy | its lower end | today | recommended"
    " | wrongly | width | of today"
)
_LOGS = "world | behaviour | states | worth a trial | certified | valid"
_TRIALS = "policies | held out | covered at the end | at both looks | found | live | planned"
_ICU_LOG = (
    "runs | behaviour | clinicians | true value of the best policy found | above the clinicians"
    " | its lower bound | valid | above the clinicians"
)

TABLES: dict[str, Callable[[], str]] = {
    **{study.name: study.table for study in STUDIES.values()},
    "budgets": partial(_text, "epsilon_cost"),
    "simulator calibration": partial(_text, "simulator_calibration"),
    "gymnasium": lambda: gymnasium.table(load("gymnasium")),
    "gymnasium verdicts": lambda: gymnasium.verdicts(load("gymnasium")),
    "suite": _suite,
    "offline icu": partial(_offline, "icu", _ICU_LOG, 0),
    "offline log": partial(_offline, "log", _LOGS, 2),
    "offline coverage": partial(_offline, "coverage", _COVERAGE, 3),
    "offline trial": partial(_offline, "trial", _TRIALS, 2),
    "audits": _audits,
    "paper regret": partial(_text, "paper_regret"),
    "linear paper regret": partial(_text, "linear_paper_regret"),
    "paper control": lambda: lq_orders.table(load("lq_orders")),
    "paper control words": lambda: lq_orders.words(load("lq_orders")),
    "paper curves": lambda: functional_curves.table(load("functional_curves")),
    **trials.TABLES,
    "paper values": lambda: functional_curves.value_table(load("functional_curves")),
}
"""Every stored table, by the name that pages give it."""


def written(page: str) -> str:
    """A page with its tables as they are stored."""
    return _MARK.sub(lambda m: f"<!-- stored: {m[1]} -->\n{TABLES[m[1]]()}\n<!-- end -->", page)


def shown(page: str) -> list[str]:
    """Names of the tables that a page shows."""
    return [match[1] for match in _MARK.finditer(page)]


def main(arguments: list[str] | None = None) -> int:
    """Writes the tables of all pages again."""
    for path in PAGES:
        path.write_text(written(path.read_text()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
