"""Specs of trials."""

import pytest

from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.privacy.errors import InvalidArgument
from tacit.trial import TrialSpec


def test_looks_are_shares_of_a_history():
    assert TrialSpec(140, 8).edges == (56, 140)
    assert TrialSpec(140, 8, looks=(1,)).edges == (140,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"horizon": 0},
        {"dimension": 0},
        {"actions": 1},
        {"probabilities": (0.0, 1.0)},
        {"probabilities": (0.1, 0.8)},
        {"probabilities": (0.4, 0.45)},
        {"probabilities": 0.5},
        {"actions": 3, "probabilities": (0.4, 0.8)},
        {"looks": ()},
        {"looks": (0.5, 0.25, 1.0)},
        {"looks": (0.5,)},
        {"looks": (0.001, 0.01, 1.0)},
        {"gram": [[1.0, 0.0]]},
        {"gram": [[1.0, 0.0], [0.0, -1.0]]},
        {"gram": [[0.0, 0.0], [0.0, 0.0]]},
        {"memory": 21},
        {"usual_reward": float("nan")},
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(InvalidArgument):
        TrialSpec(**{"horizon": 20, "dimension": 2} | wrong)


def test_a_gram_is_a_shape():
    design = TrialSpec(20, 2, gram=[[4.0, 2.0], [2.0, 4.0]]).design
    assert design.tolist() == [[0.5, 0.25], [0.25, 0.5]]
    assert TrialSpec(20, 2).design.tolist() == [[0.5, 0.0], [0.0, 0.5]]


def test_specs_are_values():
    assert TrialSpec(20, 2, gram=[[1, 0], [0, 1]]) == TrialSpec(
        20, 2, gram=((1.0, 0.0), (0.0, 1.0))
    )
    assert TrialSpec(20, 2) != TrialSpec(20, 2, memory=3)


def test_chances_are_logged_with_each_decision():
    one = VectorEpisodes(states=[[[0.1], [0.3]]], actions=[[1]], propensities=[[0.3]])
    assert one.block()["propensities"].tolist() == [[0.3]]
    assert one.take(slice(0, 1)).propensities is not None
    two = Episodes([[0, 1]], [[1]], [[0.0]], propensities=[[[0.2, 0.3, 0.5]]])
    assert two.block()["propensities"].shape == (1, 1, 3)
    assert "propensities" not in Episodes([[0, 1]], [[1]], [[0.0]]).block().arrays
    with pytest.raises(InvalidArgument):
        Episodes([[0, 1]], [[1]], [[0.0]], propensities=[[0.2, 0.3]])
