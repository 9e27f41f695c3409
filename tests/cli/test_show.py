"""``tacit show``: all names, and one."""

import pytest

from tacit import papers, registry
from tests.cli.calls import call, content, one_line


def test_list_names_everything():
    made = content(call("show", "--json"))
    names = {kind: {entry["name"] for entry in made[kind]} for kind in ("worlds", "agents")}
    assert names["worlds"] >= {"riverswim", "grid", "deep_sea", "random_mdp", "health_coach"}
    assert names["agents"] >= {"ucbvi", "ucbpo", "concurrent_psrl", "scripted"}
    riverswim = next(entry for entry in made["worlds"] if entry["name"] == "riverswim")
    assert riverswim["options"][0] == {"name": "states", "type": "int", "default": "6"}
    assert "riverswim" in call("show").stdout
    assert list(content(call("show", "agent", "--json"))) == ["agents"]


def test_show_a_world():
    made = content(call("show", "world", "riverswim:states=8", "--json"))
    assert (made["states"], made["actions"], made["horizon"]) == (8, 2, 20)
    assert made["optimal_value"] == registry.build_world("riverswim:states=8").optimal_value
    words = call("show", "world", "riverswim").stdout
    assert all(part in words for part in ("Actions:", "3.0645"))
    assert "``" not in words
    assert "optimal_value" not in content(call("show", "world", "random_mdp", "--json"))
    assert "must be given" in call("show", "world", "random_mdp").stdout
    assert content(call("show", "world", "unknown", "--json"))["optimal_value"] is None


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        ("ucb-vi", ()),
        ("ucb-vi:privatizer=local", ("--corrected",)),
        ("ucb-po", ()),
        ("ucb-po:privatizer=local", ()),
        ("dp-lsvi-ucb++", ("--corrected",)),
        ("linopt-vi", ()),
        ("linopt-po:regularizer=local", ("--corrected",)),
        ("ofu-rl", ()),
        ("functional-q", ()),
        ("chowdhury_tabular_2021.ucb_vi:privatizer=local", ("--epsilon", 1, "--delta", 0)),
    ],
)
def test_every_algorithm_of_every_paper_runs(algorithm, more):
    short = algorithm.partition(":")[0]
    world = papers.ALGORITHMS["ucb-vi" if "." in short else short][1]
    ran = call("paper", algorithm, "--world", world, "--users", 3, "--printed", *more)
    assert ran.exit_code == 0, ran.stderr
    who = "no control       loses" if short == "ofu-rl" else "random actions   lose"
    assert who in ran.stdout
    assert "nan" not in ran.stdout
    assert "proven" in ran.stdout


def test_papers_by_name():
    everything = call("paper", "list").stdout
    assert call("paper").stdout == everything
    assert all(name in everything for name in (*papers.ALGORITHMS, *papers.__all__))
    again = "To run: tacit paper dp-lsvi-ucb++ --world two_state"
    assert again in call("paper", "dp-lsvi-ucb++").stdout
    assert again in call("paper", "sahu_linear_2025").stdout
    assert "the algorithm must be" in one_line(call("paper", "nobody_1999"))
    wrong = call("paper", "linopt-vi", "--world", "riverswim")
    assert "another kind, as hard_mixture" in one_line(wrong)


def test_show_an_agent():
    made = content(call("show", "agent", "scripted", "--json"))
    assert [option["name"] for option in made["options"]] == ["never", "fail", "refuse"]
    words = call("show", "agent", "ucbvi").stdout
    assert "stationary" in words
    assert "UCBVIConstants" not in words, "no text can be its value"
    assert "agent is 'nobody'" in one_line(call("show", "agent", "nobody"))
    assert "world is 'nowhere'" in one_line(call("show", "world", "nowhere"))
    assert "must be world or agent" in one_line(call("show", "thing", "x"))
