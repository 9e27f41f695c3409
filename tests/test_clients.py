"""The JSON form of policies: Python with and without NumPy, and JavaScript, act alike."""

import ast
import importlib.util
import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit import published
from tacit.continuous.features import Grid, Polynomial
from tacit.continuous.policy import QPolicy
from tacit.lq.spec import GainPolicy
from tacit.privacy.errors import InvalidArgument
from tacit.store import ledger
from tacit.tabular.policy import MixedPolicy, Policy
from tacit.tabular.spec import FiniteSpec
from tests.node import node

CLIENTS = Path(__file__).parents[1] / "clients"
VECTORS = CLIENTS / "vectors.json"
STATES = ["idle", "busy", "away", "très loin"]
H, S, A, D = 3, 4, 3, 2


def plain():
    spec = importlib.util.spec_from_file_location("plain", CLIENTS / "python" / "policy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Given:
    """A generator that draws what it is given."""

    def __init__(self, uniforms):
        self._left = [*uniforms]

    def random(self):
        return self._left.pop(0)

    def integers(self, high, size=None):
        if size is None:
            return int(self.random() * high)
        return np.array([int(self.random() * high) for _ in range(size)])


def policies():
    rng = np.random.default_rng(0)
    table = Policy.deterministic(rng.integers(0, A, (H, S)), A, version=3)
    chances = rng.dirichlet(np.ones(A) / 2, (H, S))
    chances[:, 0] = [0.0, 1.0, 0.0]
    drawn = Policy.stochastic(chances, version=4)
    others = [Policy.deterministic(rng.integers(0, A, (H, S)), A) for _ in range(3)]
    lows, highs = (-1.0, 0.0), (1.0, 2.0)
    maps = [Grid(lows, highs, (4, 3)), Polynomial((1.0, 2.0), 2.0, 3)]
    return {
        "table": table,
        "labels": table.labelled(STATES, ["wait", "ask", "tell"]),
        "drawn": drawn,
        "mixed": MixedPolicy(others, [0.5, 0.25, 0.25], version=5),
        "mixed labels": MixedPolicy(others, [0.5, 0.25, 0.25], version=5).labelled(STATES, None),
        "gains": GainPolicy(rng.normal(size=(H, 2, D)), version=6),
        "noisy gains": GainPolicy(rng.normal(size=(H, 2, D)), noise=0.5, version=6),
        **{
            f"values on {type(m).__name__}": QPolicy(m, rng.normal(size=(A, m.size)), 0.1, 7)
            for m in maps
        },
    }


def asked(name, policy, n):
    """Steps, states, uniform numbers and components."""
    rng = np.random.default_rng([len(name), n])
    finite = isinstance(policy, (Policy, MixedPolicy))
    questions = []
    for i in range(n):
        state = int(rng.integers(S)) if finite else rng.normal(0, 1.5, D).tolist()
        if finite and i % 2 and name in ("labels", "mixed labels"):
            state = STATES[state]
        component = int(rng.integers(3)) if isinstance(policy, MixedPolicy) else None
        questions.append([int(rng.integers(H)), state, rng.random(4).tolist(), component])
    return questions


def answers(policy, questions):
    found = []
    for step, state, uniforms, component in questions:
        one = policy if component is None else policy.components[component]
        found.append(one.act(step, state, Given(uniforms)))
    return [action.tolist() if isinstance(action, np.ndarray) else action for action in found]


def text_of(policy, folder):
    policy.publish(folder / "policy.json")
    return (folder / "policy.json").read_text()


def vectors(folder, n=12):
    """What other readers can be tested with: files, questions and the right answers."""
    return [
        {
            "name": name,
            "policy": text_of(policy, folder),
            "asked": (questions := asked(name, policy, n)),
            "actions": answers(published.load(folder / "policy.json"), questions),
        }
        for name, policy in policies().items()
    ]


def same(name, one, two):
    if "gains" in name:
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)
    else:
        assert one == two, name


def test_javascript_acts_alike(tmp_path):
    cases = vectors(tmp_path, 1000)
    for case, read in zip(cases, node("check.mjs", given=cases), strict=True):
        same(case["name"], case["actions"], read["actions"])
        assert read["right"], "the hash"


def test_python_without_numpy_acts_alike(tmp_path):
    reader = plain()
    for name, policy in policies().items():
        text = text_of(policy, tmp_path)
        if not isinstance(policy, (Policy, MixedPolicy)):
            with pytest.raises(ValueError, match="reads tables"):
                reader.parse(text)
            continue
        questions = asked(name, policy, 1000)
        read = reader.parse(text)
        found = [
            read.act(step, state, Given(uniforms).random, component)
            for step, state, uniforms, component in questions
        ]
        assert found == answers(published.load(tmp_path / "policy.json"), questions), name


def test_a_mixed_policy_is_drawn_once_for_an_episode_in_every_reader(tmp_path):
    """With the same uniform number all readers draw the same, and act by it without being told."""
    policy = policies()["mixed"]
    text, u = text_of(policy, tmp_path), 0.6
    read = published.load(tmp_path / "policy.json")
    with pytest.raises(ValueError, match="draw a component first"):
        read.act(0, 0)
    for one, given in ((read, Given([u])), (plain().parse(text), Given([u]).random)):
        mine = one.drawn(given)
        assert mine.component == 1
        assert mine.act(1, 2) == policy.components[1].act(1, 2)
        assert one.component is None
    code = (
        f"import {{ parse }} from {json.dumps((CLIENTS / 'js' / 'policy.js').as_uri())};"
        f"const mine = parse({json.dumps(text)}).drawn(() => {u});"
        "console.log(JSON.stringify([mine.component, mine.act(1, 2), mine.version]));"
    )
    found = node("--input-type=module", "-e", code)
    assert found == [1, policy.components[1].act(1, 2), 5]


def test_both_forms_hold_the_same(tmp_path):
    for name, policy in policies().items():
        paths = [tmp_path / "policy.npz", tmp_path / "policy.json"]
        questions = asked(name, policy, 50)
        for path in paths:
            policy.publish(path)
        one, two = map(published.about, paths)
        assert one == two, name
        assert len(one["hash"]) == 64
        one, two = (answers(published.load(path), questions) for path in paths)
        assert one == two, name


def test_the_vectors_for_other_readers_are_right(tmp_path):
    """Written by ``python -m tests.test_clients``."""
    stored = json.loads(VECTORS.read_text())
    for case, read in zip(stored, node("check.mjs", given=stored), strict=True):
        same(case["name"], case["actions"], read["actions"])
    for case, made in zip(stored, vectors(tmp_path), strict=True):
        assert case["policy"] == made["policy"], case["name"]
        same(case["name"], case["actions"], made["actions"])


def test_a_file_that_was_changed_is_refused(tmp_path):
    text = text_of(policies()["labels"], tmp_path)
    held = json.loads(text)
    held["arrays"]["actions"]["data"][0] = (held["arrays"]["actions"]["data"][0] + 1) % A
    (tmp_path / "changed.json").write_text(json.dumps(held))
    with pytest.raises(ValueError, match="hash is not that of what it holds"):
        published.load(tmp_path / "changed.json")
    with pytest.raises(ValueError, match="it was changed"):
        plain().load(tmp_path / "changed.json")
    case = {"policy": json.dumps(held), "asked": []}
    assert not node("check.mjs", given=[case])[0]["right"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"tacit": "policy"}',
        '{"tacit": "policy", "arrays": {"format": {"dtype": "int", "shape": [], "data": [NaN]}}}',
        '{"tacit": "policy", "arrays": {"format": {"dtype": "int", "shape": [2], "data": [1]}}}',
        '{"tacit": "policy", "arrays": {"format": {"dtype": "int", "shape": [], "data": [1.5]}}}',
        '{"tacit": "policy", "arrays": []}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_damaged_texts_are_refused(text, tmp_path):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match="no published policy"):
        published.load(tmp_path / "bad.json")


def test_an_agents_file_says_where_it_comes_from(tmp_path):
    spec = FiniteSpec.named(STATES, ["wait", "ask"], horizon=H, stationary=True)
    privacy = tacit.JointDP(epsilon=1.0, delta=1e-6)
    agent = tacit.UCBVI(spec, 1000, privacy, store=tmp_path / "app.db")
    agent.publish(tmp_path / "policy.json")
    said = published.about(tmp_path / "policy.json")
    assert said["agent"] == "ucbvi"
    assert said["library"] == f"tacit {tacit.__version__}"
    assert said["spec"] == repr(spec)
    assert tacit.Guarantee.from_dict(said["guarantee"]) == agent.guarantee
    assert (said["simulated"], said["state_labels"], said["version"]) == (False, STATES, 0)
    with agent.store.read() as db:
        assert (said["ledger_line"], said["ledger_head"]) == ledger.head(db)
    assert said["date"].endswith("Z")
    read = published.load(tmp_path / "policy.json")
    assert read.act(0, "busy") == agent.policy.act(0, "busy")
    assert read.act(0, "busy") in ("wait", "ask")


def test_a_simulation_is_published_by_force_alone(tmp_path):
    world = tacit.tabular.riverswim(states=3, horizon=4)
    agent = tacit.UCBVI(world.spec, 1000, tacit.JointDP(1.0, 1e-6), noise_seed=0)
    with pytest.raises(InvalidArgument, match="this agent is a simulation"):
        agent.publish(tmp_path / "policy.npz")
    assert not (tmp_path / "policy.npz").exists()
    agent.publish(tmp_path / "policy.npz", greedy=True, force=True)
    said = published.about(tmp_path / "policy.npz")
    assert said["simulated"]
    assert said["guarantee"]["simulation_only"]


def test_only_what_draws_needs_a_generator(tmp_path):
    for name, policy in policies().items():
        policy.publish(tmp_path / "policy.npz")
        state = 1 if isinstance(policy, (Policy, MixedPolicy)) else [0.1, 0.2]
        for one in (policy, published.load(tmp_path / "policy.npz")):
            one = one.components[0] if isinstance(policy, MixedPolicy) else one
            if name in ("drawn", "noisy gains") or name.startswith("values"):
                with pytest.raises(ValueError, match="draws its actions: give rng"):
                    one.act(0, state)
            else:
                one.act(0, state)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        VECTORS.write_text(json.dumps(vectors(Path(made)), indent=1) + "\n")


def test_the_small_distribution_needs_numpy_alone(tmp_path):
    """Built without a network, installed into an environment that has NumPy and nothing else."""
    clone = tmp_path / "clone"
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for folder in ("clients/python", "src/tacit/published"):
        shutil.copytree(CLIENTS.parent / folder, clone / folder, ignore=unwanted)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", build, str(tmp_path)]
    subprocess.run(command, cwd=clone / "clients" / "python", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("tacit_policies-*.whl")
    alone = tmp_path / "alone"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(alone)
    shipped = {path.name for path in (alone / "tacit_policies").iterdir()}
    package = CLIENTS.parent / "src" / "tacit" / "published"
    assert shipped == {path.name for path in package.glob("*.py")}
    (alone / "numpy").symlink_to(Path(np.__file__).parent)
    for libraries in Path(np.__file__).parents[1].glob("numpy.libs"):
        (alone / libraries.name).symlink_to(libraries)
    made = policies()["table"]
    made.publish(tmp_path / "policy.npz")
    code = (
        f"import sys; sys.path.insert(0, {str(alone)!r})\n"
        "import tacit_policies as t\n"
        f"print(t.load({str(tmp_path / 'policy.npz')!r}).act(1, 2))\n"
        "own = {*sys.stdlib_module_names, 'numpy', 'tacit_policies', '__main__'}\n"
        "print({n.partition('.')[0] for n in sys.modules} - own)\n"
    )
    # Isolated and without site-packages.
    out = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert int(out[0]) == made.act(1, 2, np.random.default_rng(0))
    others = {name for name in ast.literal_eval(out[1]) if not name.startswith("_")}
    assert others <= {"cython_runtime"}


def test_the_small_distribution_has_the_version_of_the_large_one():
    def project(path):
        return tomllib.loads((CLIENTS.parent / path).read_text())["project"]

    small, large = project("clients/python/pyproject.toml"), project("pyproject.toml")
    assert small["version"] == large["version"]
    assert small["requires-python"] == large["requires-python"]
    assert set(small["dependencies"]) <= set(large["dependencies"])
    assert len(small["dependencies"]) == 1
