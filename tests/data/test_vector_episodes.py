"""Episodes with vector states, and blocks that are made part by part."""

import numpy as np
import pytest

from tacit import InvalidArgument, JointDP, VectorEpisodes
from tacit.privacy.standard import ClippedSum
from tacit.privacy.statistic import Block, StreamedBlock
from tacit.simulation.permuted import PermutedWorld


def some(users: int = 4, steps: int = 3, dimension: int = 2) -> VectorEpisodes:
    rng = np.random.default_rng(0)
    return VectorEpisodes(
        rng.normal(size=(users, steps + 1, dimension)),
        rng.integers(0, 3, (users, steps)),
        rng.random((users, steps)),
    )


def test_labels_are_integers_and_controls_are_vectors() -> None:
    assert some().actions.dtype == np.int64
    controls = VectorEpisodes(np.zeros((2, 4, 1)), np.full((2, 3, 2), 0.5))
    assert controls.actions.dtype == np.float64
    assert controls.rewards is None
    assert set(controls.block().arrays) == {"states", "actions", "lengths", "versions"}


def test_an_episode_lasts_unless_told_otherwise() -> None:
    assert some(steps=3).lengths.tolist() == [4] * 4
    short = VectorEpisodes(np.zeros((2, 4, 1)), np.zeros((2, 3)), lengths=[1, 3])
    assert short.lengths.tolist() == [1, 3]


def test_a_block_and_back() -> None:
    episodes = some()
    again = VectorEpisodes.of_block(episodes.block(), ["a", "b", "c", "d"])
    for name in ("states", "actions", "rewards", "lengths", "versions"):
        assert np.array_equal(getattr(again, name), getattr(episodes, name))
    assert again.take(np.array([2, 0])).user_ids == ("c", "a")


def test_values_never_raise_and_shapes_do() -> None:
    states = [[["x", 1.0], [None, np.inf]]]
    odd = VectorEpisodes(states, [["no label"]], [["?"]])
    assert np.isnan(odd.states[0, 0, 0])
    assert odd.actions.tolist() == [[-1]]
    assert np.isnan(odd.rewards).all()
    for wrong in (
        {"states": np.zeros((2, 4)), "actions": np.zeros((2, 3))},
        {"states": np.zeros((2, 1, 1)), "actions": np.zeros((2, 0))},
        {"states": np.zeros((2, 4, 1)), "actions": np.zeros((2, 4))},
        {"states": np.zeros((2, 4, 1)), "actions": np.zeros(2)},
        {"states": np.zeros((2, 4, 1)), "actions": np.zeros((2, 3)), "rewards": np.zeros((2, 2))},
        {"states": np.zeros((2, 4, 1)), "actions": np.zeros((2, 3)), "lengths": [1]},
        {"states": np.zeros((2, 4, 1)), "actions": np.zeros((2, 3)), "user_ids": [1]},
        {"states": np.zeros((2, 4, 1)), "actions": [[0, 1], [0]]},
    ):
        with pytest.raises(InvalidArgument):
            VectorEpisodes(**wrong)


def test_what_was_handed_over_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        some().states[0, 0, 0] = 1.0


# Blocks that are made part by part.


def streamed(sizes: tuple[int, ...] = (3, 5, 2)) -> tuple[StreamedBlock, Block]:
    rng = np.random.default_rng(1)
    blocks = [Block(n, {"values": 3.0 * rng.normal(size=(n, 2))}) for n in sizes]
    whole = np.concatenate([b["values"] for b in blocks])
    return StreamedBlock(sum(sizes), lambda: iter(blocks)), Block(sum(sizes), {"values": whole})


def test_parts_add_up_to_the_clipped_sum_of_the_whole() -> None:
    parts, whole = streamed()
    statistic = ClippedSum(2, radius=1.5)
    # Clipping matters here, so that adding before it would differ.
    assert np.linalg.norm(whole["values"], axis=1).max() > 1.5
    np.testing.assert_allclose(statistic.total(parts), statistic.total(whole), rtol=1e-12)


def test_parts_are_for_simulations() -> None:
    parts, _ = streamed()
    JointDP(1.0, 1e-6).curator(noise_seed=0).add(parts)
    with pytest.raises(InvalidArgument, match="simulations"):
        JointDP(1.0, 1e-6).curator().add(parts)


def test_parts_of_another_number_of_users_are_refused() -> None:
    _, whole = streamed()
    with pytest.raises(InvalidArgument, match="parts of 10"):
        ClippedSum(2).total(StreamedBlock(11, lambda: iter([whole])))


def test_the_shapes_of_parts_are_checked_before_anything_is_summed() -> None:
    wrong = StreamedBlock(2, lambda: iter([Block(2, {"values": np.zeros((2, 3))})]))
    with pytest.raises(InvalidArgument, match="shape"):
        ClippedSum(2).check(wrong)


class Labelled:
    """Two actions; hands over what it is told to."""

    name = "labelled"
    optimal_value = baseline_value = reference_value = 0.0

    class spec:
        actions = 3

    def __init__(self, data: VectorEpisodes) -> None:
        self.data = data

    def simulate(self, policy, users, rng, form):
        if form == "streamed":
            return StreamedBlock(self.data.users, lambda: iter([self.data.block()]))
        return self.data


class Renames:
    def relabelled(self, permutation):
        return self


def test_labels_of_actions_are_permuted_in_every_form() -> None:
    data = VectorEpisodes(np.zeros((1, 5, 1)), [[0, 1, 2, 7]], np.zeros((1, 4)))
    world = PermutedWorld(Labelled(data), (2, 0, 1))
    rng = np.random.default_rng(0)
    # The world's 0 is called 1 here, its 1 is called 2, its 2 is called 0; 7 is no action.
    expected = [[1, 2, 0, 7]]
    assert world.simulate(Renames(), 1, rng, "episodes").actions.tolist() == expected
    (part,) = world.simulate(Renames(), 1, rng, "streamed").parts()
    assert part["actions"].tolist() == expected
