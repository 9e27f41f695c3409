"""What is shipped: the package with its data, and nothing of the laboratory."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("src", "research", "tests", "benchmarks", "pyproject.toml", "README.md", "LICENSE")
# What pip calls, without its environment of its own, which would need a network.
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of a copy of this tree: building leaves files behind, and finds those of others."""
    folder = tmp_path_factory.mktemp("clone")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in OURS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, folder / name)
    made = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-c", BUILD, str(made)], cwd=folder, check=True, capture_output=True
    )
    (file,) = made.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_only_the_package_is_shipped(names):
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tacit"}
    for unwanted in ("research", "tests", "benchmarks"):
        assert not [name for name in names if unwanted in name.split("/")]


def test_the_whole_package_is_shipped(names):
    package = ROOT / "src" / "tacit"
    wanted = {path.relative_to(ROOT / "src").as_posix() for path in package.rglob("*.py")}
    assert {name for name in wanted if name.endswith("__init__.py")}
    assert wanted <= names


def test_data_is_shipped(names):
    counters = ROOT / "src" / "tacit" / "privacy" / "counters"
    tables = {f"tacit/privacy/counters/{path.name}" for path in counters.glob("*.json")}
    assert tables
    templates = {f"tacit/service/templates/{name}" for name in ("page.html", "style.css")}
    assert tables | templates | {"tacit/py.typed", "tacit/__init__.pyi"} <= names
    assert [name for name in names if name.endswith("/LICENSE")]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def tacit_of(installed, cwd, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "tacit.cli.app", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_the_shipped_package_works_without_a_clone(installed, tmp_path):
    made = tacit_of(installed, tmp_path, "show", "world", "riverswim", "--json")
    assert (made.returncode, made.stderr) == (0, "")


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def group(groups, name):
    for item in groups[name]:
        if isinstance(item, str):
            yield item
        else:
            yield from group(groups, item["include-group"])


def test_the_extra_and_the_group_of_developers_are_one_list():
    content = project()
    extra = content["project"]["optional-dependencies"]["dev"]
    assert list(group(content["dependency-groups"], "dev")) == extra


def test_everything_needed_is_pinned():
    content, pins = project(), (ROOT / "constraints.txt").read_text().split()
    pinned = {plain(pin.partition("==")[0]) for pin in pins}
    assert all("==" in pin for pin in pins)
    groups = content["dependency-groups"]
    lists = [
        content["project"]["dependencies"],
        *content["project"]["optional-dependencies"].values(),
        *(group(groups, name) for name in groups),
    ]
    needed = [requirement for one in lists for requirement in one]
    assert {plain(requirement) for requirement in needed} <= pinned


def plain(requirement):
    """The name of a requirement, as indexes spell it."""
    name = requirement.partition(">")[0].partition("[")[0].strip()
    return name.lower().replace("_", "-")


def content():
    return project()["project"]


def test_the_oldest_packages_are_those_that_are_allowed():
    allowed = [line.replace(">=", "==") for line in content()["dependencies"]]
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == allowed
