"""Guarantees: what they say, what they refuse, and that files give back what was saved."""

import decimal
import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy.budget import Budget, Guarantee, Relation
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.models import JointDP, LocalDP

quick = settings(deadline=None, max_examples=60)


def joint(**changes):
    fields = {
        "model": "joint",
        "epsilon": 1.0,
        "delta": 1e-6,
        "mu": Budget(1.0, 1e-6).mu,
        "relation": Relation.REPLACE_ONE,
        "releases": 75,
        "mechanism": "square-root counter, Gaussian noise",
    }
    return Guarantee(**(fields | changes))


@st.composite
def guarantees(draw):
    epsilon = draw(st.floats(1e-3, 50))
    delta = draw(st.sampled_from([0.0, 1e-9, 1e-6, 0.1 + 0.2]))
    mu = Budget(epsilon, delta).mu if delta and draw(st.booleans()) else None
    model = draw(st.sampled_from(["joint", "local"]))
    relation = draw(st.sampled_from(Relation)) if model == "joint" else Relation.REPLACE_ONE
    whole = model == "local" or relation is Relation.ZERO_OUT
    unit = draw(st.text(min_size=1).filter(str.strip))
    return Guarantee(
        model=model,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        relation=relation,
        unit="one user's whole episode" if whole else unit,
        releases=draw(st.none() | st.integers(1, 2**70)),
        mechanism=draw(st.text(min_size=1).filter(str.strip)),
        sampler="exact",
        simulation_only=draw(st.booleans()),
        episodes_per_user=draw(st.integers(1, 2**70)),
    )


@quick
@given(guarantees())
def test_round_trip_is_exact(guarantee):
    assert Guarantee.from_dict(json.loads(json.dumps(guarantee.to_dict()))) == guarantee


@quick
@given(guarantees())
def test_words_agree_with_the_numbers(guarantee):
    text = str(guarantee)
    assert f"{guarantee.model} differential privacy for {guarantee.unit}" in text
    assert guarantee.relation.value in text
    assert guarantee.mechanism in text
    assert "That she took part, when and how often, is not hidden." in text
    assert text.startswith("Simulation only") == guarantee.simulation_only
    assert guarantee.short.endswith("simulation only") == guarantee.simulation_only
    assert ("-pure " in text) == (guarantee.delta == 0)
    assert "covers every bit" in text
    if guarantee.delta == 0:
        assert "plus at most" not in text
    if guarantee.mu is None and "Gaussian diff" not in guarantee.unit + guarantee.mechanism:
        assert "Gaussian differentially private" not in text


def test_text_of_a_joint_guarantee():
    assert str(joint()) == (
        "(1, 1e-06)-joint differential privacy for one user's whole episode, replace-one. Had this "
        "user's data been any other, the probability of any event in all that is published and all "
        "that all other users see or receive would differ by at most a factor e^1 = 2.72, plus at "
        "most 1e-06. A trusted curator holds the raw data. What the user herself receives depends "
        "on her own data and is not covered. That she took part, when and how often, is not "
        "hidden. It holds for up to 75 releases together (square-root counter, Gaussian noise), "
        "which are 0.236705-Gaussian differentially private. The noise is drawn in whole numbers, "
        "by an exact sampler: the proof covers every bit that is published."
    )


def test_printed_numbers_never_claim_more():
    guarantee = joint(epsilon=1.00000001, delta=1.2345678e-6)
    assert guarantee.short.startswith("(1.00001, 1.23457e-06)")
    assert joint(epsilon=1.1, mu=None).short.startswith("(1.1, 1e-06)")


def test_large_epsilon_is_called_what_it_is():
    assert "protects little" not in str(joint())
    text = str(joint(epsilon=1000.0))
    assert (
        "at most a factor e^1000, plus at most 1e-06. A factor this large protects little" in text
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "central"),
        ("model", None),
        ("model", []),
        ("epsilon", -1),
        ("epsilon", math.nan),
        ("epsilon", True),
        ("delta", 1.0),
        ("delta", -0.1),
        ("mu", -1.0),
        ("mu", math.inf),
        ("relation", "replace-one"),
        ("unit", ""),
        ("unit", 3),
        ("releases", 0),
        ("releases", 1.5),
        ("releases", True),
        ("mechanism", "  "),
        ("sampler", "floating-point"),
        ("simulation_only", 1),
        ("episodes_per_user", 0),
        ("episodes_per_user", None),
    ],
)
def test_refusals_name_the_argument(name, value):
    with pytest.raises(InvalidArgument, match=f"^{name} (is|must be) "):
        joint(**{name: value})


def test_numbers_that_contradict_each_other_are_refused():
    with pytest.raises(InvalidArgument, match=r"mu is 0\.25, but must be small enough"):
        joint(mu=0.25)
    with pytest.raises(InvalidArgument, match="mu is"):
        joint(delta=0.0)  # no Gaussian mechanism is pure
    assert joint(mu=0.2).mu == 0.2


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": True},
        {"version": None},
        {"format": "other"},
        {"note": "an unknown key"},
        {"epsilon": -1},
        {"epsilon": "1"},
        {"relation": "add-remove"},
        {"relation": []},
        {"mu": 3.0},
    ],
)
def test_damaged_records_are_refused(change):
    with pytest.raises(CorruptFile):
        Guarantee.from_dict(joint().to_dict() | change)


def test_every_missing_field_is_refused():
    complete = joint().to_dict()
    for name in complete:
        with pytest.raises(CorruptFile):
            Guarantee.from_dict({key: complete[key] for key in complete if key != name})


@quick
@given(st.floats(1e-6, 700))
def test_no_printed_factor_is_smaller_than_the_true_one(epsilon):
    text = str(joint(epsilon=epsilon, mu=None))
    shown = float(text.split(" = ")[1].split(",")[0])
    assert shown >= decimal.Decimal(epsilon).exp()


@pytest.mark.parametrize(
    "fields",
    [
        {"relation": Relation.ZERO_OUT, "unit": "one user's rewards; states are public"},
        {"relation": Relation.ZERO_OUT, "unit": "one user with at most 3 episodes (rewards)"},
        {"model": "local", "unit": "one user's rewards; states and actions are public"},
        {"model": "local", "relation": Relation.ZERO_OUT},
        {"sampler": "bits"},
        {"model": "local", "sampler": "bits"},
    ],
)
def test_combinations_without_a_proof_are_refused(fields):
    with pytest.raises(InvalidArgument):
        joint(**fields)


# What is proven where: model, relation, whether all of a user is protected.


def combinations():
    for delta, episodes, seed in itertools.product((1e-6, 0.0), (1, 3), (None, 5)):
        same = {"epsilon": 1.1, "delta": delta, "episodes_per_user": episodes}
        for relation, disjoint in itertools.product(Relation, (False, True)):
            yield JointDP(relation=relation, disjoint=disjoint, **same), seed
        for mechanism in ["gaussian"] if delta else ["laplace", "randomised response"]:
            yield LocalDP(mechanism=mechanism, **same), seed


@pytest.mark.parametrize(("privacy", "seed"), [*combinations()], ids=str)
def test_a_curators_guarantee_has_the_words_of_its_proof_alone(privacy, seed):
    guarantee = privacy.curator(noise_seed=seed).guarantee
    text = str(guarantee)
    assert (guarantee.epsilon, guarantee.relation) == (1.1, privacy.relation)
    assert guarantee.delta == privacy.delta
    assert (guarantee.mu is None) == (privacy.delta == 0.0)
    assert "e^1.1 = 3.01" in text
    zero_out = privacy.relation is Relation.ZERO_OUT
    assert ("had this user's data not been used" in text.lower()) == zero_out
    assert ("Had this user's data been any other" in text) == (not zero_out)
    assert ("Nobody has to be trusted" in text) == privacy.local
    assert ("A trusted curator holds the raw data" in text) == privacy.joint
    assert ("-pure " in text) == (privacy.delta == 0.0)
    assert "covers every" in text
    assert text.startswith("Simulation only") == (seed is not None) == guarantee.simulation_only
    assert ("up to 3 times" in text) == (privacy.episodes_per_user == 3)
