"""Reading a stranger's published file takes no more memory than it is allowed."""

import io
import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tacit import Policy, published
from tacit.continuous import QPolicy
from tacit.continuous.features import Grid
from tacit.core.public_file import publish_with
from tacit.lq import GainPolicy
from tacit.tabular.policy import MixedPolicy


def archive(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path.with_suffix(".npz")


def table(**more):
    return {
        "format": np.int64(1),
        "version": np.int64(3),
        "n_actions": np.int64(2),
        "actions": np.zeros((4, 5), dtype=np.int64),
    } | more


def test_a_small_file_that_inflates_is_refused_before_it_does(tmp_path):
    path = archive(tmp_path / "bomb", **table(junk=np.zeros(3_000_000)))
    assert path.stat().st_size < 100_000
    limit = 10_000_000
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError, match=r"no published policy: too large: .* more than 10000000 bytes"
        ):
            published.load(path, most_bytes=limit)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    # It is the sum that counts, not each array.
    parts = {f"junk{i}": np.zeros(300_000) for i in range(10)}
    with pytest.raises(ValueError, match="take more than"):
        published.load(archive(tmp_path / "parts", **table(**parts)), most_bytes=limit)


def test_every_kind_of_file_can_say_what_the_ledger_was(tmp_path):
    head, path = 32 * "0f", tmp_path / "policy"
    policies = [
        Policy.uniform(2, 3, 2).as_version(1),
        MixedPolicy([Policy.uniform(2, 3, 2)] * 2, [0.5, 0.5], version=1),
        GainPolicy(np.zeros((2, 1, 2)), version=1),
        QPolicy(Grid((0.0,), (1.0,), (2,)), np.eye(2), version=1),
    ]
    for policy in policies:
        publish_with(policy, path, {"ledger_line": 7, "ledger_head": head})
        said = published.about(path)
        assert len(said.pop("hash")) == 64
        assert said == {"version": 1, "ledger_line": 7, "ledger_head": head}
        assert published.load(path).version == 1
        with pytest.raises(IsADirectoryError):
            publish_with(policy, tmp_path, {"ledger_line": 7, "ledger_head": head})
        policy.publish(path)
        assert set(published.about(path)) == {"version", "hash"}
    for wrong in ({"ledger_head": "x"}, {"ledger_head": head}, {"ledger_head": np.zeros(3)}):
        with pytest.raises(ValueError, match="ledger_"):
            published.about(archive(tmp_path / "wrong", **table(**wrong)))


def test_a_file_that_is_large_itself_is_not_read(tmp_path):
    path = tmp_path / "large"
    np.savez(path, **table(junk=np.random.default_rng(0).random(100_000)))
    with pytest.raises(ValueError, match="is too large: its arrays take more than 1000 bytes"):
        published.load(path.with_suffix(".npz"), most_bytes=1000)


def test_sizes_that_lie_do_not_inflate_more(tmp_path):
    """An entry is read up to the size that it states, whatever is in it."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **table(junk=np.zeros(1_000_000)))
    data = bytearray(buffer.getvalue())
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        size = file.getinfo("junk.npy").file_size
    lie = data.replace(size.to_bytes(4, "little"), (200).to_bytes(4, "little"))
    assert lie != data
    (tmp_path / "lie").write_bytes(lie)
    with pytest.raises(ValueError, match="no published policy"):
        published.load(tmp_path / "lie", most_bytes=100_000)


def values(**more):
    """A Q function whose features are monomials, up to degree 2 in 2 dimensions."""
    return {
        "format": np.int64(1),
        "version": np.int64(0),
        "kind": np.array("q"),
        "features": np.array("polynomial"),
        "scales": np.ones(2),
        "clip": np.array(1.0),
        "degree": np.int64(2),
        "weights": np.zeros((2, 6)),
        "epsilon": np.array(0.0),
        "preference": np.arange(2),
    } | more


def test_a_policy_that_cannot_be_evaluated_is_refused(tmp_path):
    """60 degrees in 12 dimensions are 10^13 monomials, in a file of a few bytes."""
    loaded = published.load(archive(tmp_path / "good", **values()))
    assert loaded.act(0, [0.5, 0.5], np.random.default_rng(0)) == 0
    for weights in (np.zeros((2, 1)), np.zeros((2, 6))):
        path = archive(
            tmp_path / "large", **values(scales=np.ones(12), degree=np.int64(60), weights=weights)
        )
        with pytest.raises(ValueError, match=r"weights of shape .* do not fit the features"):
            published.load(path)
    # As many weights as features, each of which is a list of up to 30,000 factors.
    many = values(scales=np.ones(1), degree=np.int64(29_999), weights=np.zeros((2, 30_000)))
    with pytest.raises(ValueError, match=r"acting takes 7\d{9} bytes, more than 134217728"):
        published.load(archive(tmp_path / "long", **many))


@pytest.mark.parametrize(
    "change",
    [
        {"degree": np.int64(2**62)},
        {"degree": np.int64(-1)},
        {"degree": np.array([2])},
        {"degree": np.array(2.0)},
        {"scales": np.ones(())},
        {"scales": np.zeros(2)},
        {"clip": np.array(np.nan)},
        {"features": np.array("none")},
        {"epsilon": np.array(1.5)},
        {"epsilon": np.array(np.nan)},
        {"preference": np.arange(3)},
        {"preference": np.array([0, 0])},
        {"preference": np.array([0.0, 1.0])},
        {"weights": np.zeros((2, 5))},
        {"weights": np.zeros((0, 6))},
        {"version": np.int64(-1)},
    ],
    ids=str,
)
def test_parts_that_do_not_fit_are_refused(tmp_path, change):
    with pytest.raises(ValueError, match="no published policy"):
        published.load(archive(tmp_path / "wrong", **values(**change)))


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(ValueError, match="is no regular file"):
            published.load(path)
    with pytest.raises(IsADirectoryError):
        published.load(tmp_path)


def test_other_ways_of_packing_are_refused(tmp_path):
    """The header of an entry packed by LZMA says how much memory is taken to unpack it."""
    plain = archive(tmp_path / "plain", **table())
    with (
        zipfile.ZipFile(plain) as old,
        zipfile.ZipFile(tmp_path / "packed", "w", zipfile.ZIP_LZMA) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(ValueError, match="entries that no published policy has"):
        published.load(tmp_path / "packed")
