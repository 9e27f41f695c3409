"""What the command line prints for people: plain sentences and small tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.simulation.compare import (
    median,
    number_words,
    privacy_words,
    rows,
    users_words,
)

if TYPE_CHECKING:
    from tacit.audit.audit_report import AgentAudit
    from tacit.audit.check_agent import Outcome
    from tacit.cli.doctor import Check
    from tacit.simulation.compare import Comparison
    from tacit.simulation.plan import Plan

_MANY_SEEDS = 12
_STYLES = {
    "ok": "green",
    "skipped": "dim",
    "slow": "yellow",
    "missing": "dim",
    "failed": "bold red",
}
_FIGURES = ("not reached", "not known", "-", "...", "")


def show_run(made: Comparison) -> None:
    """One agent: a row per seed, the guarantee, and what it means for users."""
    console, results = _console(), made.results[0]
    first = results[0]
    _say(
        console,
        f"{made.entries[0].label} on {made.world}: {made.users:,} users, optimal value "
        f"{first.optimal_value:.4g}, without learning {first.baseline_value:.4g}",
    )
    titles, *_ = rows({})
    table = [(str(result.seed), *rows({"": [result]})[1][1:-1]) for result in results]
    if len(table) > _MANY_SEEDS:
        table[_MANY_SEEDS - 1 :] = [("...", *[""] * (len(titles) - 2))]
    if len(results) > 1:
        table.append(("median", *rows({"": results})[1][1:-1]))
    _table(console, ("seed", *titles[1:-1]), table)
    if first.guarantee is None:
        _say(console, "Not private: nothing is guaranteed to the users.")
    else:
        _say(console, f"Guarantee: {first.guarantee}")
    if made.entries[0].agent.batch:
        _say(console, _batch_words(median(_number(r.score) for r in results), made.users))
    else:
        _say(console, _run_words(median(result.users_to_90 for result in results), made.users))


def _batch_words(score: float | None, users: int) -> str:
    words = (
        f"These {users:,} users were served by the behaviour policy and gained nothing: it is a "
        "batch agent, made for those who come after them."
    )
    if score is None:
        return words
    return f"{words} The policy learnt from them has a score of {score:.3f}."


def _number(value: float) -> float | None:
    return value if value == value else None


def _run_words(needed: float | None, users: int) -> str:
    if needed is None:
        return f"{users:,} users were not enough to get 90 % of what is possible, for good."
    words = f"After {users_words(needed)} users, those who come get 90 % of what is possible"
    if users < 10 * needed:
        return f"{words}, but the run is too short (under ten times that) to say for good."
    return f"{words}, for good."


def show_comparison(made: Comparison) -> None:
    """A row per agent and budget."""
    console, first = _console(), made.results[0][0]
    runs = len(made.results[0])
    how = "one run" if runs == 1 else f"median of {runs} runs"
    _say(
        console,
        f"{made.world}: {made.users:,} users, {how}, optimal value {first.optimal_value:.4g}, "
        f"without learning {first.baseline_value:.4g}",
    )
    titles, *table = rows(made.labelled())
    _table(console, titles, table)
    exact = [e.label for e in made.entries if getattr(e.privacy, "sampler", "") == "exact"]
    if exact:
        _say(console, f"Drawn as whole numbers (sampler=exact): the noise of {', '.join(exact)}.")
    if any(results[0].guarantee is not None for results in made.results):
        _say(console, "Simulation only: the noise has a known seed and protects nobody.")


def show_plan(made: Plan) -> None:
    """What to expect, and how far it can be trusted."""
    console = _console()
    _say(console, f"{made.agent} on {made.world}: {privacy_words(made.privacy)}")
    least, most = (users_words(end) for end in made.spread)
    plain = made.to_dict()["non_private_users_to_90_median"]
    _table(
        console,
        ("", ""),
        [
            (f"users to 90 %, median of {len(made.results)} runs", users_words(made.users_to_90)),
            ("  luckiest run", least),
            ("  unluckiest run", most),
            ("  until the greedy policy has 90 %", users_words(made.greedy_users_to_90)),
            ("  without privacy", users_words(plain)),
            ("  times as many as without privacy", number_words(made.price)),
            ("noise of a count, standard deviation", number_words(made.noise_std)),
            ("releases", f"{made.results[0].releases:,}"),
            ("users declared in the simulation", f"{made.users:,}"),
        ],
    )
    if made.why:
        _say(console, f"Chosen: {made.why}.")
    if made.random:
        _say(
            console,
            "These are random worlds of your sizes. One in which reward is hard to find takes more "
            "users: try riverswim with as many states, or your own tables in a file.",
        )
    if made.batch:
        _say(
            console,
            "It is a batch agent: the users it learns from are served by its behaviour policy and "
            "gain nothing. The numbers are of the smallest batch tried whose policy is good.",
        )
    if made.users_to_90 is None:
        _say(console, f"{made.users:,} users are not enough at this budget.")
    elif not made.settled:
        _say(
            console,
            f"{made.users:,} users are fewer than ten times the median, so the number is "
            "uncertain: a longer run may show that it was not for good.",
        )


def show_audit(made: AgentAudit) -> None:
    """What was claimed, what was measured, and the verdict."""
    from tacit.audit.audit_report import FALSE_ALARM, audit_words

    console = _console()
    _say(console, f"Audit of {made.agent} on {made.world}")
    words = dict(audit_words(made))
    verdict = words.pop("verdict")
    _table(console, ("", ""), list(words.items()))
    if made.outcomes:
        rows_of_checks = [
            (o.name, _outcome(o), o.skipped or ("" if o.failure is None else str(o.failure)))
            for o in made.outcomes
        ]
        _table(console, ("check", "", ""), rows_of_checks)
    for failure in made.failures:
        _say(console, f"Wrong: {failure}.")
    _say(
        console,
        f"Verdict: {verdict}. An agent that does what it says fails with a probability below "
        f"{FALSE_ALARM:g}.",
    )


def _outcome(outcome: Outcome) -> str:
    if outcome.skipped is not None:
        return "skipped"
    return "ok" if outcome.failure is None else "failed"


def show_names(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Worlds and agents with their options."""
    console = _console()
    for kind, entries in found.items():
        table = [(e["name"], e["summary"], _options(e["options"])) for e in entries]
        _table(console, (kind, "", "options and defaults"), table)
    _say(
        console,
        "Besides: files mine.toml or mine.json with a world's tables, Gymnasium's environments as "
        "gym:FrozenLake-v1,horizon=20, and your own as my_module.MyAgent.\n"
        "More about one: tacit show agent ucbvi",
    )


def show_entry(found: Mapping[str, Any]) -> None:
    """One world or agent: documentation, options and, for a world, values."""
    console = _console()
    if found["document"]:
        # Its lines have their breaks already, and are longer than some terminals are wide.
        console.print(_plain(found["document"]), soft_wrap=True)
        console.print()
    if found["options"]:
        table = [
            (o["name"], o["kind"], "must be given" if o["required"] else o["default"])
            for o in found["options"]
        ]
        _table(console, ("option", "what it may be", "default"), table)
    if "optimal_value" in found:
        sizes = ("states", "dimension", "actions", "controls", "horizon")
        values = ("optimal_value", "baseline_value", "reference_value")
        figures = [
            (key.replace("_", " "), _figure(found[key]))
            for key in (*sizes, *values)
            if key in found
        ]
        _table(console, (found["world"], ""), figures)


def show_checks(checks: Sequence[Check]) -> None:
    """What the doctor found."""
    console = _console()
    _table(console, ("", "", ""), [(check.name, check.state, check.detail) for check in checks])
    found = {state: [c.name for c in checks if c.state == state] for state in ("failed", "slow")}
    words = [f"Broken: {', '.join(found['failed'])}."] if found["failed"] else ["All is well."]
    if found["slow"]:
        words.append(f"Slow: {', '.join(found['slow'])}.")
    _say(console, " ".join(words))


def _console() -> Console:
    # Made when needed: standard output may have been replaced since the last time.
    return Console(highlight=False, markup=False)


def _say(console: Console, text: str) -> None:
    console.print(text)
    console.print()


def _table(console: Console, titles: Sequence[str], table: Sequence[Sequence[str]]) -> None:
    drawn = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_header=any(titles)
    )
    for place, title in enumerate(titles):
        figures = place > 0 and all(_is_figure(row[place]) for row in table)
        drawn.add_column(
            Text(title), justify="right" if figures else "left", overflow="fold", no_wrap=figures
        )
    for row in table:
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console.print(drawn)


def _is_figure(text: str) -> bool:
    return text in _FIGURES or text.lstrip("-")[:1].isdigit()


def _figure(value: float | None) -> str:
    return "not known" if value is None else f"{value:,.5g}"


def _options(options: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(o["name"] if o["required"] else f"{o['name']}={o['default']}" for o in options)


def _plain(document: str) -> str:
    """A docstring without its markup.

    >>> _plain("see ``run`` and :class:`~tacit.Policy`")
    'see run and tacit.Policy'
    """
    return re.sub(r":\w+:`~?([^`]+)`", r"\1", document).replace("``", "")
