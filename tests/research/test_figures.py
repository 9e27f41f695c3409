"""Figures: every command draws its picture and prints its table; numbers are what they say."""

import importlib

import numpy as np
import pytest

import tacit
from research import epsilon_cost, first_agent, functional_curves, results
from research.figures import FIGURES
from research.study import load
from tests.research.commands import REFUSED, names_what_it_refuses, refused_in_one_line

PNG = b"\x89PNG\r\n\x1a\n"
QUICK = {
    "research.epsilon_cost": "\n| UCBPO |  |  |",
    "research.functional_curves": "| Proposition 10 | 5.05 |",
    "research.linear_paper_regret": "| epsilon, 1 to 1000 | LSVI, tuned |",
    "research.lq_orders": "Order in epsilon: -0.41",
    "research.paper_regret": "| random actions |  | 450 | 900 | - | - |",
}


@pytest.mark.parametrize(("module", "words"), QUICK.items())
def test_a_figure_is_measured_and_drawn(module, words, tmp_path, capsys):
    path = tmp_path / "a.png"
    given = [f"--output={path}", "--quick", "--runs=1", "--workers=1"]
    assert importlib.import_module(module).main(given) == 0
    assert path.read_bytes().startswith(PNG)
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("module", FIGURES.values())
def test_every_figure_refuses_nonsense_in_one_line(module, capsys):
    main = importlib.import_module(module).main
    refused_in_one_line(main, ["--output=/no/such/folder/picture.png", "--nonsense"], capsys)
    assert {*QUICK, "research.first_agent"} == set(FIGURES.values())


class TestFirstAgent:
    def test_a_run_says_what_was_learnt_and_what_it_means(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "100")
        picture = tmp_path / "demo.png"
        assert first_agent.main([f"--output={picture}", "--users=100000"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert picture.read_bytes().startswith(PNG)
        assert "Chosen: concurrent_psrl: finite world, joint DP: " in text
        assert "(1, 1e-06)-joint differential privacy" in text
        assert "of 100,000 users the policy was within 10 % of the best, for good" in text
        assert "more than 2.72 times as likely, up to a probability of 1e-6." in text

    def test_words_without_success_promise_none(self):
        few, _ = first_agent.learn(tacit.JointDP(1.0, 1e-6), 30)
        plain, _ = first_agent.learn(tacit.NonPrivate(), 1_000)
        assert "30 users did not suffice" in first_agent.words(few, plain)
        pure, _ = first_agent.learn(tacit.JointDP(1.0, 0.0), 10_000)
        assert first_agent.words(pure, pure).endswith("more than 2.72 times as likely.")

    @pytest.mark.parametrize("arguments", REFUSED)
    def test_bad_arguments_are_refused_in_one_line(self, tmp_path, capsys, arguments):
        names_what_it_refuses(first_agent.main, arguments, tmp_path, capsys)


class TestOrders:
    def test_the_papers_page_has_the_stored_slopes(self):
        """Privacy costs about the same at any K under joint DP, like sqrt(K) under local DP."""
        rows = [
            row.strip("| ").split(" | ") for row in results.TABLES["paper regret"]().split("\n")
        ]
        slopes = {(row[0], row[1]): row[-2:] for row in rows[2:-1]}
        page = (results.ROOT / "docs/papers/chowdhury_tabular_2021.md").read_text()
        by_users = {key: float(found[0]) for key, found in slopes.items() if found[0] != "-"}
        by_epsilon = sorted(float(found[1]) for found in slopes.values() if found[1] != "-")
        joint_vi, joint_po = by_users["UCB-VI", "joint"], by_users["UCB-PO", "joint"]
        local_vi, local_po = by_users["UCB-VI", "local"], by_users["UCB-PO", "local"]
        assert f"{joint_vi:.2f} (VI) and {joint_po:.2f} (PO) under joint DP" in page
        assert f"{local_vi:.2f} and {local_po:.2f} under local DP" in page
        assert f"{by_epsilon[-1]:.2f} to {by_epsilon[0]:.2f}" in page
        assert max(joint_vi, joint_po) < 0.3 < 0.4 < min(local_vi, local_po) < 0.55

    def test_lines_have_their_budgets(self):
        cases = [one.case(0.1) for one in epsilon_cost.LINES]
        assert {case.privacy.epsilon for case in cases} == {0.1}


class TestFunctional:
    def test_every_curve_has_ten_runs_of_a_hundred_users(self):
        """Or one fewer, where her last batch would be shorter than the others."""
        for rows in load("functional_curves")["curves"].values():
            assert len(rows) == 10
            assert {len(row) for row in rows} <= {99, 100}

    def test_what_the_paper_prints_does_not_learn(self):
        """78 gradient steps of 3e-4 hardly move the network."""
        for epsilon in functional_curves.CLAIMS:
            rows = functional_curves.rows_of(load("functional_curves"), "Algorithm 1", epsilon)
            assert np.median(rows[:, -20:].mean(axis=1)) < 15.0

    def test_runs_are_stored_as_they_are(self):
        found = functional_curves.returns("functional state", 0.9, 0)
        stored = load("functional_curves")["curves"]["functional state, 0.9"][0]
        assert stored == pytest.approx(found, abs=1e-4)

    def test_the_proposition_does_not_hold(self):
        """Where nobody moves every value is off by its noise over 1 - discount."""
        rng = np.random.default_rng(3)
        found = functional_curves.value_error(50, 2.0, 0.9, moves=False, rng=rng)
        noise = 2.0 * np.random.default_rng(3).standard_normal((1, 50))
        assert found == pytest.approx(np.abs(noise).mean() / 0.1, rel=1e-6)
        for errors in load("functional_curves")["values"].values():
            for n, error in zip(functional_curves.SIZES, errors, strict=True):
                assert error > functional_curves.proposition_10(n, 1.0, 0.9)
