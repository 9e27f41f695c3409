"""``tacit show``: all names, and one."""

from __future__ import annotations

from tacit import registry
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
    assert "Actions:" in words
    assert "3.0645" in words
    assert "``" not in words
    assert "optimal_value" not in content(call("show", "world", "random_mdp", "--json"))
    assert "must be given" in call("show", "world", "random_mdp").stdout
    assert content(call("show", "world", "unknown", "--json"))["optimal_value"] is None


def test_a_paper_and_its_algorithms():
    words = call("paper").stdout
    assert "ucb_po, ucb_vi" in words
    assert "lin_opt_po, lin_opt_vi" in words
    assert "To run: tacit paper sahu_linear_2025" in call("paper", "sahu_linear_2025").stdout
    given = ("--world", "riverswim:states=3,horizon=4", "--users", "100", "--epsilon", 1)
    ran = call("paper", "chowdhury_tabular_2021.ucb_vi:privatizer=local", *given, "--delta", 0)
    assert ran.exit_code == 0, ran.stderr
    assert "needs an algorithm" in one_line(call("paper", "sahu_linear_2025", *given))
    assert "the paper must be" in one_line(call("paper", "nobody_1999"))


def test_show_an_agent():
    made = content(call("show", "agent", "scripted", "--json"))
    assert [option["name"] for option in made["options"]] == ["never", "fail", "refuse"]
    words = call("show", "agent", "ucbvi").stdout
    assert "stationary" in words
    assert "UCBVIConstants" not in words, "no text can be its value"
    assert "agent is 'nobody'" in one_line(call("show", "agent", "nobody"))
    assert "world is 'nowhere'" in one_line(call("show", "world", "nowhere"))
    assert "must be world or agent" in one_line(call("show", "thing", "x"))
