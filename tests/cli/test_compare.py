"""``tacit run`` with several agents or budgets: one table."""

from __future__ import annotations

from tacit.simulation.tables import load_results
from tests.cli.calls import BUDGET, call, content, entry, one_line, run


def compare(*arguments):
    fixed = ("--world", "two_coins", "--users", "1e4", "--workers", 1, "--seeds", 2)
    return call("run", *fixed, *arguments)


def test_agents_times_budgets(tmp_path):
    picture, file = tmp_path / "a.png", tmp_path / "a.json"
    made = content(
        compare(
            *("--agent", "scripted", "--agent", "scripted:never=1", "--agent"),
            *("scripted:privacy=none", "--agent", "scripted:privacy=local,epsilon=4"),
            *("--epsilon", "0.1", "--epsilon", "1", "--delta", "1e-6"),
            *("--plot", picture, "--save", file, "--json"),
        )
    )
    assert list(made) == [
        *("world", "users", "optimal_value", "baseline_value", "reference_value"),
        *("assumed", "entries", "seconds"),
    ]
    seen = {
        e["label"]: (e["privacy"]["model"], e["privacy"]["epsilon"], e["users_to_90_median"])
        for e in made["entries"]
    }
    assert seen == {
        "scripted, epsilon 0.1": ("joint", 0.1, 150),
        "scripted, epsilon 1": ("joint", 1.0, 150),
        "scripted:never=1, epsilon 0.1": ("joint", 0.1, None),
        "scripted:never=1, epsilon 1": ("joint", 1.0, None),
        "scripted:privacy=none": ("none", None, 150),
        "scripted:privacy=local,epsilon=4": ("local", 4.0, 150),
    }
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert {label: len(runs) for label, runs in load_results(file).items()} == dict.fromkeys(
        seen, 2
    )
    single = entry(run(*BUDGET, "--seeds", 2, "--json"))
    again = next(e for e in made["entries"] if e["label"] == "scripted, epsilon 1")
    assert again["runs"] == single["runs"]


def test_a_comparison_for_people():
    outcome = compare("--agent", "scripted", "--agent", "scripted:privacy=none", *BUDGET)
    assert outcome.exit_code == 0
    words = " ".join(outcome.stdout.split())
    assert "two_coins:best=1.0: 10,000 users, median of 2 runs, optimal value 1," in words
    assert "1e-06)-JDP" in words
    assert "Simulation only" in words


def test_comparisons_refuse_before_they_run():
    twice = compare("--agent", "scripted:fail=true", "--agent", "scripted:fail=true", *BUDGET)
    assert "'scripted:fail=true' is there twice" in one_line(twice)
    late = compare("--agent", "scripted:fail=true", "--agent", "nobody", *BUDGET)
    assert "agent is 'nobody'" in one_line(late)
    assert "--epsilon is missing" in one_line(compare("--agent", "scripted", "--delta", "0.1"))
    other = compare("--agent", "scripted", *BUDGET, "--plot", "x.bmp")
    assert "must end in .png, .pdf, .svg" in one_line(other)
