"""Tables of the stored results, for docs/results.md and the notes beside the data.

A page names a table between ``<!-- stored: NAME -->`` and ``<!-- end -->``. The command writes all
of them again, from the stored results alone; nothing is run.

    python -m research.results
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from research import (
    audit_table,
    distributed,
    fewer_users,
    fewer_users_control,
    fewer_users_linear,
    functional_curves,
    glucose,
    gymnasium,
    icu_sepsis,
    large_worlds,
    linear_comparison,
    lq_orders,
    misspecification,
    offline,
    paper_orders,
    paper_switching,
    plan_check,
    policy_gradients,
    policy_optimisation,
    public_prior,
    smooth_control,
    which_agent,
)
from research.command_lines import stored_file

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "results.md", *sorted((ROOT / "research" / "notes").glob("*.md")))
"""The pages that are written."""
_MARK = re.compile(r"<!-- stored: ([\w ]+) -->\n.*?<!-- end -->", re.DOTALL)


def _rows(lines: Iterable[str]) -> str:
    """The rows of a table, without its title and notes."""
    return "\n".join(line for line in lines if line.startswith("|"))


def _text(module: str, table: str) -> str:
    """A table that was stored as it was printed."""
    return _rows(json.loads(stored_file(module).read_text())[table]["text"].splitlines())


def _headed(head: str, lines: Iterable[str], names: int = 1) -> str:
    """Rows below a head, whose first columns are names."""
    columns = head.count("|") + 1
    rule = "|---" * names + "|---:" * (columns - names) + "|"
    return "\n".join([f"| {head} |", rule, *lines])


def _held_out(unseen: bool) -> str:
    kept = {"riverswim, 10 states", "grid, 6 by 6", "deep_sea, 12 deep"}
    kept |= {"random_mdp, seed 3", "random_mdp, seed 4"}
    stored = json.loads(stored_file("held_out").read_text())
    head = "world | S, A, H | private | greedy policy | not private | ratio | greedy score"
    return _headed(
        head, [row["text"] for name, row in stored.items() if (name in kept) == unseen], 2
    )


def _icu(ablations: bool) -> str:
    rows = [row.line for row in icu_sepsis.stored().values()]
    shown = [row for row in rows if row.startswith("| ablation: ") == ablations]
    head = "what differs" if ablations else "users"
    return _headed(
        f"{head} | runs | score at the end | mean score of all users",
        [row.replace("ablation: ", "") for row in shown],
    )


def _offline(kind: str, head: str, names: int) -> str:
    rows = {n: row for n, row in offline.stored().items() if n.partition(",")[0] == kind}
    return _headed(head, [offline.line(name, row) for name, row in rows.items()], names)


def _audits() -> str:
    stored = json.loads(stored_file("audit_table").read_text())
    rows = [stored[agent]["text"] for agent in audit_table.agents() if agent in stored]
    head = "agent | joint | joint, pure | local | local, pure | randomised response"
    cells = [cell for row in rows for cell in row.strip("| ").split(" | ")[1:]]
    passed = f"{sum(cell != '-' for cell in cells)} audits of {len(rows)} agents passed."
    return _headed(head, rows) + f"\n\n{passed}"


def _glucose() -> str:
    rows = [row.line for row in glucose.stored().values()]
    return _headed("agent | runs | greedy policy at the end | mean of all users", rows)


def _large(worlds: list[str]) -> str:
    return large_worlds.markdown(list(large_worlds.stored().values()), worlds)


def _linear(table: str) -> str:
    return fewer_users_linear.markdown(list(fewer_users_linear.stored().values()), table)


def _far(world: str) -> str:
    return misspecification.markdown(list(misspecification.stored().values()), world)


def _control(held_out: bool) -> str:
    stored = fewer_users_control.load()
    return fewer_users_control.table(stored, "CertaintyEquivalence", held_out)


_COVERAGE = (
    "world | behaviour | method | all hold | best policy | its lower end | today | recommended"
    " | wrongly | width | of today"
)
_ICU_LOG = (
    "runs | behaviour | clinicians | true value of the best policy found | above the clinicians"
    " | its lower bound | valid | above the clinicians"
)
_WIDTHS = "world | behaviour | best policy, private / not | today, private / not | largest ratio"

TABLES: dict[str, Callable[[], str]] = {
    "which agent": lambda: which_agent.table(which_agent.load()),
    "budgets": partial(_text, "epsilon_cost", "table"),
    "few users": lambda: fewer_users.table(fewer_users.load()),
    "few users parts": lambda: fewer_users.ablations(fewer_users.load()),
    "worlds": partial(_held_out, unseen=False),
    "unseen worlds": partial(_held_out, unseen=True),
    "public model": lambda: public_prior.table(public_prior.load()),
    "policy optimisation": lambda: policy_optimisation.users_table(policy_optimisation.load()),
    "slopes": lambda: policy_optimisation.slopes_table(policy_optimisation.load()),
    "tabular orders": partial(_text, "tabular_orders", "table"),
    "many states": partial(_icu, ablations=False),
    "many states parts": partial(_icu, ablations=True),
    "distributed": lambda: "\n".join(distributed.lines(json.loads(distributed.STORED.read_text()))),
    "linear few users": partial(_linear, "linear"),
    "linear few users parts": partial(_linear, "ablations"),
    "linear agents": partial(_text, "linear_held_out", "agents"),
    "linear statistics": partial(_text, "linear_held_out", "statistics"),
    "linear local": partial(_text, "linear_held_out", "local"),
    "linear rivals": lambda: linear_comparison.markdown(
        json.loads(linear_comparison.STORED.read_text())
    ),
    "linear budgets": partial(_text, "linear_budgets", "table"),
    "far from linear": partial(_far, "simplex"),
    "mixture few users": partial(_linear, "mixture"),
    "mixture agents": partial(_text, "mixture_held_out", "agents"),
    "mixture statistics": partial(_text, "mixture_held_out", "statistics"),
    "mixture local": partial(_text, "mixture_held_out", "local"),
    "mixture orders": partial(_text, "mixture_orders", "table"),
    "far from mixtures": partial(_far, "mixture_of_models"),
    "simulators": partial(_large, ["currents"]),
    "control": partial(_text, "lq_held_out", "agents"),
    "control local": partial(_text, "lq_held_out", "local"),
    "control honesty": partial(_text, "lq_held_out", "honesty"),
    "control parts": partial(_control, held_out=False),
    "control explore": partial(_control, held_out=True),
    "smooth known": lambda: smooth_control.table(smooth_control.load(), learnt=False),
    "smooth learnt": lambda: smooth_control.table(smooth_control.load(), learnt=True),
    "functional": partial(_text, "continuous_held_out", "agents"),
    "functional baselines": partial(_text, "continuous_held_out", "paper"),
    "functional all served": partial(_text, "continuous_held_out", "online"),
    "functional most served": partial(_text, "continuous_held_out", "served"),
    "kernels": partial(_large, ["line", "trap", "gusts"]),
    "policy gradients": lambda: policy_gradients.table(policy_gradients.load()),
    "glucose": _glucose,
    "gymnasium": lambda: gymnasium.table(gymnasium.load()),
    "plans": lambda: plan_check.table(plan_check.load()),
    "offline icu": partial(_offline, "icu", _ICU_LOG, 0),
    "offline coverage": partial(_offline, "coverage", _COVERAGE, 3),
    "offline widths": partial(_offline, "width", _WIDTHS, 2),
    "audits": _audits,
    "paper orders": lambda: paper_orders.markdown(paper_orders.stored()),
    "paper switching": lambda: paper_switching.markdown(list(paper_switching.stored().values())),
    "paper control": lambda: lq_orders.table(lq_orders.load()),
    "paper control words": lambda: lq_orders.words(lq_orders.load()),
    "paper control width": lq_orders.width_table,
    "paper curves": lambda: functional_curves.table(functional_curves.load()),
    "paper values": lambda: functional_curves.value_table(functional_curves.load()),
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
