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
    assert riverswim["options"][0] == {
        "name": "states",
        "kind": "a whole number",
        "required": False,
        "default": "6",
    }
    words = call("show").stdout
    assert "riverswim" in words
    assert "states=6" in words
    assert list(content(call("show", "agent", "--json"))) == ["agents"]


def test_what_cannot_be_imported_does_not_hide_the_others():
    made = content(call("show", "--json"))
    lost = next(entry for entry in made["agents"] if entry["name"] == "lost")
    assert "cannot be imported" in lost["summary"]


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
    assert "horizon" in call("show", "world", "gym").stdout
    assert content(call("show", "world", "unknown", "--json"))["optimal_value"] is None


def test_show_a_world_of_a_file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"transitions": [[[1.0]]], "rewards": [[0.5]], "horizon": 2}')
    assert content(call("show", "world", path, "--json"))["optimal_value"] == 1.0
    assert "optimal value" in call("show", "world", path).stdout


def test_show_an_agent():
    made = content(call("show", "agent", "scripted", "--json"))
    assert [option["name"] for option in made["options"]] == ["never", "fail", "refuse"]
    words = call("show", "agent", "ucbvi").stdout
    assert "stationary" in words
    assert "true or false" in words
    assert "agent is 'nobody'" in one_line(call("show", "agent", "nobody"))
    assert "world is 'nowhere'" in one_line(call("show", "world", "nowhere"))
    assert "must be one of world, agent" in one_line(call("show", "thing", "x"))
