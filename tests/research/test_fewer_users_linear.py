"""The table of users to 90 % of the posterior agents: what the documentation shows is stored."""

from __future__ import annotations

import pytest

from research.fewer_users_linear import CASES, band, main, markdown, stored

# What was asked for at epsilon 1 before the agents were built.
AT_MOST = {
    "simplex, pooled": 180,
    "simplex, per step": 610,
    "simplex, not stationary": 610,
    "simplex, 100 states, per step": 2_100,
    "two_state, by LSVIUCB": 152,
    "mixture_of_models, by LinOptVI": 65,
}


def test_what_is_stored_is_shown_without_running(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show"]) == 0
    shown = capsys.readouterr().out
    assert all(markdown(list(stored().values()), table) in shown for table in ("linear", "mixture"))


@pytest.mark.parametrize("place", AT_MOST)
def test_users_are_at_most_what_was_asked_for(place: str) -> None:
    assert band(stored()[f"{place}, epsilon 1"]["users_to_90"])[0] <= AT_MOST[place]


@pytest.mark.parametrize("place", AT_MOST)
@pytest.mark.parametrize("epsilon", ["1", "10", "0.1"])
def test_nine_of_ten_runs_need_at_most_four_times_the_median(place: str, epsilon: str) -> None:
    median, _, high = band(stored()[f"{place}, epsilon {epsilon}"]["users_to_90"])
    assert high <= 4.0 * median


def test_names_are_different() -> None:
    names = [case.name(epsilon) for case in CASES for epsilon in case.users]
    assert len(set(names)) == len(names)


def test_a_run_that_never_got_there_counts_as_infinite() -> None:
    assert band([100, None, 120])[2] == float("inf")
