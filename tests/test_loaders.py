"""Hostile files on everything that reads files, each with little memory and little time."""

import os
import tracemalloc

import pytest

import tacit
from research.hostile.files import damaged, file_cases, hand_made
from research.hostile.fuzzing import Broken, outcome
from tacit import published
from tacit.data.logs import LogFormat, files_of
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.service.app_file import read_app

each = pytest.mark.parametrize("case", file_cases(), ids=lambda case: case.name)


@each
def test_files_made_by_hand_are_refused(case):
    accepted = [name for name in hand_made(case.name, case.suffix) if outcome(case.hand_made, name)]
    assert len(accepted) <= 1


@each
def test_damaged_files_break_nothing(case):
    refused = [not outcome(case.damaged, seed) for seed in range(60)]
    assert sum(refused) > 25


def test_every_loader_is_attacked():
    names = " ".join(case.name for case in file_cases())
    for name in ("Result", "load_results", ".toml", ".json", "published"):
        assert name in names
    # Published policies of every kind that is a family's.
    assert sum(case.name.startswith("published") for case in file_cases()) >= 3


def test_files_of_an_app_are_regular_ones_too(tmp_path):
    """Its description and its logs: nobody waits for a FIFO, and nothing nested fills the stack."""
    fifo, deep = tmp_path / "logs.csv", tmp_path / "app.toml"
    os.mkfifo(fifo)
    deep.write_text("x = " + "[" * 5_000 + "]" * 5_000)
    log = LogFormat(horizon=2)
    with pytest.raises(CorruptFile, match="not a regular file"):
        read_app(os.fspath(fifo))
    with pytest.raises(CorruptFile, match="not a regular file"):
        next(log.file_episodes(os.fspath(fifo), 10, grouped=True))
    with pytest.raises(CorruptFile, match="not a regular file"):
        files_of(fifo)
    with pytest.raises(InvalidArgument, match="nested"):
        read_app(os.fspath(deep))


def test_a_number_of_actions_takes_no_memory(tmp_path):
    """A file of a kilobyte that names more actions than there is memory for."""
    path = tmp_path / "policy"
    tacit.Policy.deterministic([[0, 1], [1, 0]], 10**6).publish(path)
    tracemalloc.start()
    policy = published.load(path)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert policy.act(0, 1) == 1


def test_what_breaks_is_seen():
    def hog(path):
        try:
            bytearray(10**15)
        except MemoryError as error:
            raise InvalidArgument("typed, and too late") from error

    def runs(path):
        (path.parent / "executed").touch()

    case = file_cases()[0]
    for read in (hog, runs, lambda path: {}["a"]):
        with pytest.raises(Broken):
            outcome(type(case)("x", case.write, read).damaged, 3)


def test_damage_can_be_done_again():
    assert all(damaged(case, 3) == damaged(case, 3) for case in file_cases())
