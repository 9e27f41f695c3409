"""Results as tables and files, and pictures by their names' ends."""

import math
import xml.etree.ElementTree as ET

import pytest

import tacit
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.simulation.plots import PALE, PALETTE, plot_results
from tacit.simulation.result import Result
from tacit.simulation.tables import frame, load_results, merged, save_results


def made(seed=0, agent="toy", best=1.0):
    return Result(
        agent=agent,
        world="coin",
        privacy="NonPrivate()",
        seed=seed,
        served=[0, 10, 100],
        values=[0.5, 0.75, best],
        greedy_values=[0.5, 0.98, best],
        optimal_value=1.0,
        baseline_value=0.5,
        reference_value=0.0,
    )


def test_a_row_per_release():
    table = frame({"a": [made(0), made(1)], "b": [made(2)]})
    assert table.shape == (9, 23)
    assert table["label"].tolist() == ["a"] * 6 + ["b"] * 3
    assert table["seed"].tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert table["users"].tolist() == [0, 10, 100] * 3
    assert table["regret"].tolist() == [0.0, 5.0, 27.5] * 3
    assert table["score"].tolist() == [0.0, 0.5, 1.0] * 3
    assert table["serving_value"].tolist() == [0.5, 0.75, 1.0] * 3
    assert {*table["model"], *table["epsilon"]} == {"none", math.inf}


@pytest.mark.parametrize("ending", [".json", ".JSON"])
def test_what_is_saved_is_loaded(tmp_path, ending):
    results = {"a": [made(0), made(1)], "b": [made(2)]}
    save_results(results, tmp_path / f"runs{ending}")
    made().save(tmp_path / "one.json")
    assert Result.load(tmp_path / "one.json") == made()
    assert load_results(tmp_path / f"runs{ending}") == results


def test_several_runs_are_not_one_result(tmp_path):
    save_results({"a": [made(0), made(1)]}, tmp_path / "runs.json")
    with pytest.raises(CorruptFile, match="has 2 runs"):
        Result.load(tmp_path / "runs.json")
    with pytest.raises(InvalidArgument, match=r"must end in \.json"):
        made().save(tmp_path / "x.parquet")


def test_merging_counts_a_run_once():
    whole = merged([{"a": [made(0)]}, {"a": [made(0), made(1)], "b": [made(2)]}])
    assert ([run.seed for run in whole["a"]], list(whole)) == ([0, 1], ["a", "b"])


def test_merging_never_makes_one_line_of_two_budgets_or_agents():
    def run(epsilon, seed=0, agent="ucbvi"):
        privacy = tacit.JointDP(epsilon, 1e-6) if epsilon else tacit.NonPrivate()
        return tacit.run(
            agent, "riverswim:states=3,horizon=4", seed, users=20, privacy=privacy, progress=False
        )

    both = merged([{"auto": [run(1.0)]}, {"auto": [run(10.0), run(1.0, 1)]}])
    assert {name: len(runs) for name, runs in both.items()} == {
        f"auto, {tacit.JointDP(1.0, 1e-6)!r}": 2,
        f"auto, {tacit.JointDP(10.0, 1e-6)!r}": 1,
    }
    agents = merged([{"auto": [run(None)]}, {"auto": [run(None, agent="ucbpo")]}])
    assert list(agents) == ["auto, ucbvi", "auto, ucbpo"]


@pytest.mark.parametrize(
    ("ending", "begins"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")]
)
def test_pictures_are_what_their_names_say(tmp_path, ending, begins):
    twice = []
    for name in ("a", "b"):
        made().plot(tmp_path / f"{name}{ending}")
        twice.append((tmp_path / f"{name}{ending}").read_bytes())
    assert twice[0].startswith(begins)
    assert twice[0] == twice[1]
    if ending == ".svg":
        assert ET.fromstring(twice[0]).tag.endswith("svg")  # noqa: S314  # made above


def test_more_lines_than_colours_have_other_dashes():
    lines = {f"line {k}": [made(k)] for k in range(len(PALETTE) + 2)}
    figure = plot_results(lines)
    for axes in figure.axes:
        drawn = [line for line in axes.lines if line.get_color() != PALE]
        looks = {(line.get_color(), line.get_linestyle()) for line in drawn}
        assert len(looks) == len(drawn) == len(lines)
    assert set(lines) <= {text.get_text() for text in figure.legends[0].get_texts()}
