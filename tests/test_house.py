"""The house stays small: rooms within their limits, few agents, one kind of noise."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

from tacit.registry import BUILT_IN

ROOT = Path(__file__).parents[1] / "src" / "tacit"
FILES = {path.relative_to(ROOT): path.read_text() for path in sorted(ROOT.rglob("*.py"))}
HOUSE = tomllib.loads(Path(__file__).with_name("house.toml").read_text())


def sizes():
    """Lines by room; modules beside the rooms are one room."""
    found = Counter()
    for path, text in FILES.items():
        found[path.parts[0] if len(path.parts) > 1 else "hallway"] += len(text.splitlines())
    return found


def test_no_room_exceeds_its_limit():
    limits, found = HOUSE["rooms"], sizes()
    assert found.keys() == limits.keys()
    assert {room: (n, limits[room]) for room, n in found.items() if n > limits[room]} == {}


def test_the_house_does_not_exceed_its_limit():
    assert sum(sizes().values()) <= HOUSE["total"]


def test_what_stands_beside_the_house_stays_small():
    limits, beside = HOUSE["beside"], ROOT.parents[1]
    found = {
        name: sum(len(path.read_text().splitlines()) for path in (beside / name).rglob("*.py"))
        for name in limits
    }
    assert {name: (n, limits[name]) for name, n in found.items() if n > limits[name]} == {}


def test_there_are_few_agents():
    assert len(BUILT_IN) <= HOUSE["agents"]


def asking(text):
    """Where a text asks which kind of noise there is; what it only makes sure of is fine.

    >>> asking("if isinstance(x, (Noise, int)): pass"), asking("assert isinstance(x, Noise)")
    (['isinstance(x, (Noise, int))'], [])
    """
    tree = ast.parse(text)
    asserted = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    sure = {id(node) for found in asserted for node in ast.walk(found)}
    return [
        ast.unparse(call)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in ("isinstance", "issubclass")
        and id(call) not in sure
        and {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(call.args[-1])}
        & set(HOUSE["noise"]["kinds"])
    ]


def test_nothing_asks_which_noise_there_is():
    may = HOUSE["noise"]["may_ask"]
    found = {str(path): asking(text) for path, text in FILES.items() if path.as_posix() not in may}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_no_word_is_about_noise_in_floating_point():
    pattern = re.compile(HOUSE["noise"]["words"], re.IGNORECASE)
    found = {str(path): pattern.findall(" ".join(text.split())) for path, text in FILES.items()}
    assert {path: words for path, words in found.items() if words} == {}
    assert pattern.search("Simulations draw in floating-point") is not None
    assert pattern.search('sampler: Literal["auto", "exact"] = "auto"') is not None


# Rooms one can read: whole subjects, each name once, docstrings in the field's words.


def definitions():
    """Classes and functions of the package, each with its file and its docstring."""
    for path, text in FILES.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield path, node, ast.get_docstring(node) or ""


def test_a_module_is_a_whole_subject():
    lengths = {str(p): len(t.splitlines()) for p, t in FILES.items() if p.name != "__init__.py"}
    assert {name: n for name, n in lengths.items() if n > 700} == {}
    assert len({name for name, n in lengths.items() if n < 60}) <= 5


def test_no_public_class_has_the_name_of_another():
    classes = [node for _, node, _ in definitions() if isinstance(node, ast.ClassDef)]
    names = Counter(node.name for node in classes if not node.name.startswith("_"))
    assert [name for name, n in names.items() if n > 1] == []


def test_functions_of_many_parameters_describe_them():
    bare = []
    for path, node, doc in definitions():
        if isinstance(node, ast.ClassDef) or node.name.startswith("_") or "_loops" in path.name:
            continue
        names = [a.arg for a in (*node.args.args, *node.args.kwonlyargs)]
        of_protocol = names[1:2] in (["state"], ["policy"])  # Algorithm and World describe them
        if len({*names} - {"self", "cls"}) >= 4 and "Args:" not in doc and not of_protocol:
            bare.append(f"{path}: {node.name}")
    assert bare == []


def test_docstrings_begin_with_what_a_thing_is():
    dialect = ("What ", "Who ", "Whether what", "See :")
    found = [f"{path}: {node.name}" for path, node, doc in definitions() if doc.startswith(dialect)]
    assert found == []


# A block's way: how often a reader of one run goes from room to room.

WALK = """
import sys, warnings
from pathlib import Path
import tacit
warnings.simplefilter("ignore")
world = tacit.tabular.riverswim(states=4, horizon=5)
joint = tacit.JointDP(epsilon=1.0, delta=1e-6)
agent = tacit.UCBVI(world.spec, users=5000, privacy=joint, noise_seed=0)
root, calls = str(Path(tacit.__file__).parent) + "/", []
def called(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(root) and "<" not in code.co_name:
        calls.append(code.co_filename[len(root):])
sys.setprofile(called)
tacit.run(agent, world, seed=0, progress=False)
sys.setprofile(None)
rooms = [file.split("/")[0] for file in calls]
print(sum(a != b for a, b in zip(rooms, rooms[1:])) / agent.releases, len({*calls}))
"""


def test_a_block_does_not_wander():
    """Functions are called as they are written, uncompiled, so the walk is always the same."""
    plain = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    said = subprocess.run([sys.executable, "-c", WALK], env=plain, capture_output=True, check=True)
    changes, files = map(float, said.stdout.split())
    assert changes <= HOUSE["walk"]["changes"]
    assert files <= HOUSE["walk"]["files"]
