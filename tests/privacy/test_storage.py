"""State files: exact round trips, and nothing but whole, undamaged files is ever read."""

import hashlib
import json
import os
import random
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.storage import FORMAT_VERSION, read_state, write_atomic, write_state

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64"),
]


def big_endian(name):
    return np.dtype(name).newbyteorder(">")


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
some_arrays = hnp.arrays(
    st.sampled_from(DTYPES).map(np.dtype) | st.sampled_from(DTYPES).map(big_endian),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)


def write_small(path, step=1):
    write_state(path, "small", {"step": step}, {"a": np.arange(3.0), "b": np.array(True)})


def temporaries(folder):
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


def forge(path, header, payload=b"", version=FORMAT_VERSION, length=None):
    """Write a file whose checksum is right and whose content is not."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    prefix = struct.pack("<8sIQ", b"\x89TACIT\r\n", version, len(raw) if length is None else length)
    body = prefix + raw + payload
    path.write_bytes(body + hashlib.sha256(body).digest())


@settings(max_examples=80, deadline=None)
@given(
    meta=st.dictionaries(text, json_values, max_size=4),
    arrays=st.dictionaries(text, some_arrays, max_size=3),
)
def test_what_is_written_is_read_back_exactly(meta, arrays):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state")
        write_state(path, "any", meta, arrays)
        state = read_state(path, "any")
    assert (state.kind, state.version) == ("any", FORMAT_VERSION)
    assert repr(sorted(state.meta.items())) == repr(sorted(resorted(meta).items()))
    assert state.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        back = state.arrays[name]
        assert (back.dtype, back.shape) == (array.dtype.newbyteorder("="), array.shape)
        assert (
            back.tobytes() == array.astype(back.dtype).tobytes()
        )  # bit for bit, NaN payloads included
        assert back.flags.owndata
        assert back.flags.writeable


def resorted(value):
    """The same JSON value with the keys of all objects in sorted order."""
    if isinstance(value, dict):
        return {key: resorted(value[key]) for key in sorted(value)}
    return [resorted(item) for item in value] if isinstance(value, list) else value


def test_big_endian_and_strided_arrays_come_back_native_and_equal(tmp_path):
    table = np.arange(12, dtype=">i4").reshape(3, 4)
    write_state(tmp_path / "s", "k", {}, {"t": table.T, "e": table[::2, ::-1]})
    arrays = read_state(tmp_path / "s", "k").arrays
    np.testing.assert_array_equal(arrays["t"], table.T)
    np.testing.assert_array_equal(arrays["e"], table[::2, ::-1])
    assert arrays["t"].dtype == np.dtype("int32")


def test_a_generator_state_survives(tmp_path):
    before = np.random.default_rng(7)
    before.normal(size=3)
    write_state(tmp_path / "s", "k", {"generator": before.bit_generator.state}, {})
    after = np.random.default_rng(0)
    after.bit_generator.state = read_state(tmp_path / "s", "k").meta["generator"]
    np.testing.assert_array_equal(after.normal(size=9), before.normal(size=9))


def test_equal_states_give_equal_bytes(tmp_path):
    a, b = np.ones(2), np.zeros(3)
    write_state(tmp_path / "1", "k", {"x": 1, "y": 2}, {"a": a, "b": b})
    write_state(tmp_path / "2", "k", {"y": 2, "x": 1}, {"b": b, "a": a})
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@pytest.mark.parametrize(
    "meta",
    [
        {"x": float("nan")},
        {"x": [float("inf")]},
        {"x": (1, 2)},
        {"x": {1: 2}},
        {1: 2},
        {"x": np.int64(3)},
        {"x": np.zeros(2)},
        {"x": b"bytes"},
        {"x": "\ud800"},
        {"x": 10**5000},
    ],
)
def test_meta_that_json_would_change_is_refused(tmp_path, meta):
    with pytest.raises(InvalidArgument, match="meta"):
        write_state(tmp_path / "s", "k", meta, {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "array",
    [
        np.array([object()]),
        np.array(["text"]),
        np.array([1j]),
        np.array([1.0], dtype=np.float16),
        np.array([1.0], dtype=np.longdouble),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.zeros(2, dtype=[("x", "f8")]),
        np.ma.masked_array([1.0, 2.0], mask=[True, False]),
        [1.0, 2.0],
    ],
)
def test_other_arrays_are_refused_and_named(tmp_path, array):
    with pytest.raises(InvalidArgument, match="culprit"):
        write_state(tmp_path / "s", "k", {}, {"culprit": array})
    assert os.listdir(tmp_path) == []


def test_refusals_do_not_repeat_secret_metadata(tmp_path):
    with pytest.raises(InvalidArgument) as caught:
        write_state(tmp_path / "s", "k", {"seed": 31337, "bad": float("nan")}, {})
    assert "31337" not in str(caught.value)


def test_every_flipped_byte_is_refused(tmp_path):
    path = tmp_path / "s"
    write_small(path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        with pytest.raises(CorruptFile) as caught:
            read_state(path, "small")
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_every_truncation_and_any_addition_is_refused(tmp_path):
    path = tmp_path / "s"
    write_small(path)
    whole = path.read_bytes()
    for damaged in [*(whole[:n] for n in range(len(whole))), whole + b"\0", whole + whole]:
        path.write_bytes(damaged)
        with pytest.raises(CorruptFile):
            read_state(path, "small")


@pytest.mark.parametrize("foreign", [b"", b"\n", b"{}", b"\x93NUMPY\x01\x00", b"\x80\x04K\x01."])
def test_foreign_files_are_refused(tmp_path, foreign):
    (tmp_path / "s").write_bytes(foreign)
    with pytest.raises(CorruptFile, match="not a Tacit state file"):
        read_state(tmp_path / "s", "k")


def test_another_kind_is_refused_and_both_are_named(tmp_path):
    write_small(tmp_path / "s")
    with pytest.raises(CorruptFile, match="'small', not 'large'"):
        read_state(tmp_path / "s", "large")


def test_a_newer_version_is_refused_and_named(tmp_path):
    header = {"kind": "k", "meta": {}, "arrays": []}
    forge(tmp_path / "s", header, version=FORMAT_VERSION + 1)
    with pytest.raises(CorruptFile, match=f"version {FORMAT_VERSION + 1}"):
        read_state(tmp_path / "s", "k")


def test_a_missing_file_stays_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "s", "k")


def row(**changes):
    return {"name": "a", "dtype": "float64", "shape": [2], "offset": 0, **changes}


@pytest.mark.parametrize(
    "arrays",
    [
        [row(dtype="object")],
        [row(dtype="<f8")],
        [row(dtype=["float64"])],
        [row(shape=[3])],
        [row(shape=[1])],
        [row(shape=[-2])],
        [row(shape=[2.0])],
        [row(shape=2)],
        [row(shape="")],
        [row(shape=[2**70])],
        [row(shape=[0, 2**70])],
        [row(shape=[2**63, 2**63, 2])],
        [row(shape=[1] * 100)],
        [row(offset=8)],
        [row(offset=-8)],
        [row(offset="0")],
        [row(shape=[1]), row(shape=[1], offset=8)],  # one name twice
        [row(shape=[1]), row(name="b", shape=[1])],  # overlapping
        [row(name=["a"])],
        [{}],
        [],
        None,
    ],
)
def test_headers_that_lie_are_refused(tmp_path, arrays):
    forge(tmp_path / "good", {"kind": "k", "meta": {}, "arrays": [row()]}, payload=bytes(16))
    read_state(tmp_path / "good", "k")
    forge(tmp_path / "s", {"kind": "k", "meta": {}, "arrays": arrays}, payload=bytes(16))
    with pytest.raises(CorruptFile):
        read_state(tmp_path / "s", "k")


@pytest.mark.parametrize(
    "header", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"kind":"k","meta":[],"arrays":[]}']
)
def test_headers_that_are_no_headers_are_refused(tmp_path, header):
    forge(tmp_path / "s", header)
    with pytest.raises(CorruptFile):
        read_state(tmp_path / "s", "k")


@pytest.mark.parametrize("length", [3, 2**40, 2**64 - 1])
def test_a_wrong_header_length_is_refused(tmp_path, length):
    forge(tmp_path / "s", {"kind": "k", "meta": {}, "arrays": []}, length=length)
    with pytest.raises(CorruptFile):
        read_state(tmp_path / "s", "k")


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_secret_files_are_private_even_when_they_replace_a_public_one(tmp_path):
    path = tmp_path / "s"
    write_state(path, "k", {}, {})
    assert mode(path) == 0o600
    path.chmod(0o666)
    write_state(path, "k", {}, {})
    assert mode(path) == 0o600


@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o027, 0o640)])
def test_public_files_follow_the_umask(tmp_path, umask, expected):
    previous = os.umask(umask)
    try:
        write_state(tmp_path / "s", "k", {}, {}, secret=False)
    finally:
        os.umask(previous)
    assert mode(tmp_path / "s") == expected


def test_a_secret_is_private_while_it_is_written(tmp_path, monkeypatch):
    seen = []
    replace = os.replace

    def spy(source, target):
        seen.append(mode(source))
        replace(source, target)

    monkeypatch.setattr(os, "replace", spy)
    write_small(tmp_path / "s")
    assert seen == [0o600]


@pytest.mark.parametrize("broken", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, broken, error):
    path = tmp_path / "s"
    write_small(path, step=1)

    def fail(*_):
        raise error("broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, fail)
        with pytest.raises(error):
            write_small(path, step=2)
    assert read_state(path, "small").meta == {"step": 1}
    assert os.listdir(tmp_path) == ["s"]


def test_a_directory_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "s").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_small(tmp_path / "s")
    assert os.listdir(tmp_path) == ["s"]


def test_the_data_is_on_disk_before_its_name_is(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, n=name, f=real: (calls.append(n), f(*a))[1])
    write_small(tmp_path / "s")
    assert calls == ["fsync", "replace", "fsync"]  # the file, its name, the directory


def test_write_atomic_without_replacing(tmp_path):
    write_atomic(tmp_path / "s", b"first", 0o600, replace=False)
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "s", b"second", 0o600, replace=False)
    assert (tmp_path / "s").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["s"]


def test_a_bare_file_name_is_written_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_small("s")
    assert read_state(Path("s"), "small").meta == {"step": 1}


WRITER = """
import sys, itertools, numpy as np
from tacit.privacy.storage import write_state
for step in itertools.count():
    write_state(sys.argv[1], "loop", {"step": step}, {"a": np.full(20_000, step)})
    print(step, flush=True)
"""


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    rng = random.Random(0)
    path = tmp_path / "s"
    for _ in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout.readline() == b"0\n"
            time.sleep(rng.uniform(0, 0.03))
            writer.send_signal(signal.SIGKILL)
            reported = [0, *map(int, writer.stdout.read().split())]
        state = read_state(path, "loop")
        # What was reported as written is there; at most the next write is there too.
        assert state.meta["step"] - reported[-1] in (0, 1)
        assert (state.arrays["a"] == state.meta["step"]).all()
    assert all(mode(tmp_path / name) == 0o600 for name in temporaries(tmp_path))
