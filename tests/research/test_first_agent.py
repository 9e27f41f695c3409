"""The demo: both runs, the guarantee and the plain words are printed, and the picture is made."""

import pytest

import tacit
from research.first_agent import learn, main, words
from tests.research.commands import REFUSED, names_what_it_refuses


def test_a_run_says_what_was_learnt_and_what_it_means(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    picture = tmp_path / "demo.png"
    assert main([f"--output={picture}", "--users=100000"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "Chosen: concurrent_psrl: finite world, joint DP: " in text
    assert "concurrent_psrl on riverswim:states=6,horizon=20: 100,000 users" in text
    assert "Guarantee: Simulation only" in text
    assert "(1, 1e-06)-joint differential privacy" in text
    assert "of 100,000 users the policy was within 10 % of the best, for good" in text
    assert "more than 2.72 times as likely, up to a probability of 1e-6." in text


def test_the_private_agent_of_the_demo_learns():
    result, _ = learn(tacit.JointDP(1.0, 1e-6), 200_000)
    assert result.users_to_90 is not None
    assert result.users_to_90 <= 4_000
    assert result.guarantee is not None
    assert result.guarantee.simulation_only


def test_words_without_success_promise_none():
    few, chosen = learn(tacit.JointDP(1.0, 1e-6), 1)
    plain, _ = learn(tacit.NonPrivate(), 1_000)
    assert "1 user is too few for any private method at this budget" in chosen
    assert few.users_to_90 is None
    assert "1 user did not suffice" in words(few, plain)
    assert "for good" not in words(few, plain)


def test_pure_privacy_has_no_exception():
    result, _ = learn(tacit.JointDP(1.0, 0.0), 10_000)
    assert words(result, result).endswith("more than 2.72 times as likely.")


@pytest.mark.parametrize("arguments", REFUSED)
def test_bad_arguments_are_refused_in_one_line(tmp_path, capsys, arguments):
    names_what_it_refuses(main, arguments, tmp_path, capsys)
