"""Noise and local reports in JavaScript: the same bytes give the same numbers as in Python."""

import hashlib
import json
import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import chi2

from tacit import Block, LocalDP
from tacit.privacy.deviates import Deviates, Scale, curve
from tacit.privacy.local import noise_scale
from tacit.privacy.noise import grid_step, grid_total
from tacit.tabular.visits import VisitCounts, question
from tests.node import node


def some_bytes(seed, count):
    parts = (hashlib.sha256(f"{seed}:{i}".encode()).digest() for i in range(count // 32 + 1))
    return b"".join(parts)[:count]


class Given:
    """Bytes one after the other."""

    def __init__(self, held):
        self.held, self.used = held, 0

    def __call__(self, count):
        self.used += count
        assert self.used <= len(self.held)
        return self.held[self.used - count : self.used]


def drawn(squared, scale, count, source):
    """What Python makes of the bytes, number by number."""
    deviates = Deviates(source)
    return [deviates._one(curve(squared), Scale.of(scale)) for _ in range(count)]


def noise_cases():
    scales = [(True, 1.0), (True, 0.37), (True, 1234.567), (True, 2.0**40), (True, 2.0**-10)]
    scales += [(False, 1.0), (False, 17.25), (False, 1e9 + 0.5)]
    cases = [(*kind, 100, some_bytes(kind, 8000)) for kind in scales]
    for squared in (True, False):
        cells = curve(squared)
        # Beyond the last cell, which chance finds once in 10^15 numbers.
        for above in (0, 1, 5, 100):
            first = (cells.edges[-2] + above).to_bytes(8, "little")
            cases.append((squared, 1000.5, 1, first + some_bytes(above, 4000)))
        # Points that the table does not decide.
        for cell in (0, 1, 40, 64 * cells.end - 1):
            sure, height = int(cells.sure[cell]), int(cells.heights[cell])
            for above in (sure, sure + 1, height - 1):
                first = (cells.edges[cell] + above).to_bytes(8, "little")
                cases.append((squared, 3.3, 1, first + some_bytes((cell, above), 4000)))
    return cases


def test_the_same_bytes_give_the_same_noise():
    cases, expected = noise_cases(), []
    for squared, scale, count, held in cases:
        source = Given(held)
        numbers = drawn(squared, scale, count, source)
        expected.append({"numbers": [str(number) for number in numbers], "used": source.used})
    given = [
        {"squared": squared, "scale": scale, "count": count, "bytes": held.hex()}
        for squared, scale, count, held in cases
    ]
    assert node("check_noise.mjs", given=given) == expected


@pytest.mark.parametrize("squared", [True, False])
def test_noise_from_the_machine_has_its_law(squared):
    # A chi-square test that fails by chance less than once in 10^10 times.
    scale, count, most = 2.5, 6_000, 7
    (answer,) = node(
        "check_noise.mjs", given=[{"squared": squared, "scale": scale, "count": count}]
    )
    numbers = np.clip([int(number) for number in answer["numbers"]], -most, most)
    edges = (np.arange(-most, most) + 0.5) / scale
    below = (
        ndtr(edges)
        if squared
        else np.where(edges < 0, 0.5 * np.exp(-np.abs(edges)), 1.0 - 0.5 * np.exp(-np.abs(edges)))
    )
    expected = count * np.diff(np.concatenate([[0.0], below, [1.0]]))
    found = np.bincount(numbers + most, minlength=2 * most + 1)
    distance = ((found - expected) ** 2 / expected).sum()
    assert distance < chi2.isf(1e-12, 2 * most)


def asked():
    rng = np.random.default_rng(5)
    table, tables = rng.integers(0, 2, (4, 3)), rng.integers(0, 2, (3, 4, 3))
    sizes = {"states": 3, "actions": 2, "horizon": 4}
    return [
        VisitCounts(**sizes),
        VisitCounts(**sizes, weight=math.sqrt(0.2)),
        VisitCounts(**sizes, pooled=True, cap=2, weight=math.sqrt(0.2)),
        VisitCounts(**sizes, policy=table, version=3),
        VisitCounts(**sizes, pooled=True, policy=table, version=3),
        VisitCounts(**sizes, pooled=True, cap=1, policy=tables, version=3),
    ]


def episodes(count):
    """Also such as no honest user has."""
    rng = np.random.default_rng(6)
    made = []
    for _ in range(count):
        rewards = rng.choice([0.0, 1.0, 0.3, -2.0, 7.5, math.nan], 4)
        made.append(
            {
                "states": rng.integers(-1, 4, 5).tolist(),
                "actions": rng.integers(-1, 3, 4).tolist(),
                "rewards": [None if math.isnan(reward) else reward for reward in rewards],
                "version": int(rng.choice([3, 3, 3, 2])),
                "component": int(rng.integers(-1, 4)),
            }
        )
    return made


def block(episode):
    rewards = [math.nan if reward is None else reward for reward in episode["rewards"]]
    return Block(
        1,
        {
            "states": np.array([episode["states"]]),
            "actions": np.array([episode["actions"]]),
            "rewards": np.array([rewards]),
            "versions": np.array([episode["version"]]),
            "components": np.array([episode["component"]]),
        },
    )


@pytest.mark.parametrize("model", [LocalDP(1.0, 1e-6), LocalDP(2.0, 0.0, episodes_per_user=3)])
def test_reports_made_in_javascript_are_those_made_in_python(model):
    given, expected = [], []
    for number, statistic in enumerate(asked()):
        step = grid_step(statistic, model.norm)
        scale = noise_scale(statistic, model) / step
        for row, episode in enumerate(episodes(25)):
            held = some_bytes((number, row), 40 * statistic.layout.size + 4000)
            steps = grid_total(statistic, block(episode), step)
            noise = drawn(not model.needs_l1, scale, steps.size, Given(held))
            expected.append((step * (steps + np.array(noise)).astype(np.float64)).tolist())
            asking = question(statistic, model)
            given.append({"question": asking, "episode": episode, "bytes": held.hex()})
    for case, answer, right in zip(
        given, node("check_report.mjs", given=given), expected, strict=True
    ):
        assert answer.get("report") == right, (answer.get("error"), case["episode"])


def test_a_question_with_too_little_noise_is_refused():
    fields = json.loads(question(VisitCounts(3, 2, 4, pooled=True), LocalDP(1.0, 1e-6)))
    changes = [
        ({}, None),
        ({"scale": 0.999 * fields["scale"]}, "less noise than its budget promises"),
        ({"delta": 0.9 * fields["delta"]}, "less noise"),
        ({"epsilon": 0.99}, "less noise"),
        ({"horizon": 5}, "less noise"),
        ({"weight": 2.0}, "less noise"),
        ({"step": 3.0}, "no power of two"),
        ({"mechanism": "none"}, "mechanism"),
        ({"statistic": "everything"}, "everything"),
        ({"format": 2}, "format"),
    ]
    cases = [
        {"question": json.dumps(fields | change), "episode": {"states": "nonsense"}}
        for change, _ in changes
    ]
    for answer, (change, words) in zip(node("check_report.mjs", given=cases), changes, strict=True):
        if words is None:
            assert len(answer["report"]) == 6 * 3 + 6
        else:
            assert words in answer["error"], change
