"""``tacit plan --bounds``: what the papers' theorems promise."""

from __future__ import annotations

import pytest

from tacit.papers.bounds import Question, promises
from tests.cli.calls import BUDGET, call, content, one_line

SIZES = {"--states": 6, "--actions": 2, "--horizon": 20, "--users": "1e6", "--dimension": 10}


def bounds(*arguments, **changed):
    sizes = SIZES | {f"--{name}": value for name, value in changed.items()}
    given = [word for pair in sizes.items() for word in pair]
    return call("plan", "--bounds", *given, *BUDGET, *arguments)


def test_it_says_what_the_theorems_say():
    made = content(bounds("--json"))
    expected = promises(Question(10**6, 20, 6, 2, 10, 1.0, 1e-6))
    assert made["most"] == 2e7
    assert made["question"]["episodes"] == 10**6
    assert [row["theorem"] for row in made["promises"]] == [p.theorem for p in expected]
    assert [row["printed"] for row in made["promises"]] == [p.printed for p in expected]
    assert [row["corrected"] for row in made["promises"]] == [p.corrected for p in expected]
    text = bounds().stdout
    assert "K H = 2e+07" in text
    assert "not known" in text
    assert "sqrt(K) is not proven" in " ".join(text.split())


def test_pure_budgets_have_the_tabular_theorems():
    given = [word for pair in SIZES.items() for word in pair]
    pure = call("plan", "--bounds", *given, "--epsilon", 1, "--delta", 0)
    assert pure.exit_code == 0
    assert pure.stdout.count("PRIVATE-UCB-VI") == 2
    assert "Gaussian noise" not in pure.stdout
    assert "needs a delta above 0" in pure.stdout
    assert "nothing" in bounds().stdout


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"states": 0}, "states"), ({"users": "many"}, "users"), ({"failure": 0}, "failure")],
)
def test_it_refuses_in_one_line(changed, words):
    assert words in one_line(bounds(**changed))


def test_it_needs_a_budget_and_sizes():
    given = [word for pair in SIZES.items() for word in pair]
    assert "--bounds needs --states" in one_line(call("plan", "--bounds", *BUDGET))
    assert "--bounds needs --epsilon" in one_line(call("plan", "--bounds", *given))
