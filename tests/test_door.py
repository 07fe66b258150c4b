"""Pages for contributors name things that exist, and their commands work."""

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

import grimp
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
RELEASING = ROOT / "docs" / "releasing.md"
PATH = re.compile(r"`((?:cgp|docs|tests|experiments|models)/[\w/.-]+|[A-Z]+\.(?:md|cff)|setup\.cfg)`")
LINK = re.compile(r"\]\((?!http)([^)#]+)")
TEST = re.compile(r"(tests/[\w/]+/test_\w+\.py)(?:::(\w+))?")
TARGET = re.compile(r"make ([a-z][a-z-]+)")


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def pinned(command: str) -> set[str]:
    """The extras of an installation with the tested versions."""
    match = re.fullmatch(r'python -m pip install -c constraints.txt "\.\[([\w,]+)\]"', command)
    assert match is not None, command
    return set(match[1].split(","))


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING, RELEASING], ids=lambda page: page.stem)
def test_the_pages_name_files_and_targets_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(PATH.findall(text)) > 2
    assert [name for name in PATH.findall(text) if not (ROOT / name).exists()] == []
    assert [link for link in LINK.findall(text) if not (page.parent / link).exists()] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    assert set(TARGET.findall(text)) <= targets


def test_the_workflow_runs_the_one_command_on_both_ends_of_the_versions() -> None:
    job = read(".github/workflows/check.yml")["jobs"]["check"]
    assert ".ci/run" in [step.get("run") for step in job["steps"]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [name.rpartition(" :: ")[2] for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert job["strategy"]["matrix"]["python"] == [versions[0], versions[-1]]
    assert project["requires-python"] == f">={versions[0]}"


def test_the_hosting_installs_the_requirements_of_the_pages() -> None:
    hosting = read(".readthedocs.yaml")
    assert (ROOT / hosting["sphinx"]["configuration"]).exists()
    (command,) = hosting["build"]["jobs"]["install"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (tested,) = re.findall(r"^TESTED := (.*)$", makefile, re.MULTILINE)
    assert pinned(command) == {*tested.split(","), "docs"}


def test_a_commit_is_checked_by_make_lint() -> None:
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    assert [hook["entry"] for hook in repository["hooks"]] == ["make lint"]


@pytest.mark.parametrize("name", ["bug", "proposal"])
def test_templates_ask_for_something(name: str) -> None:
    form = read(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    assert any(part["validations"]["required"] for part in form["body"] if "validations" in part)


def test_settings_are_in_one_file_each() -> None:
    """setup.cfg keeps what pyproject.toml calls dynamic, and says nothing twice."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert list(parser["metadata"]) == ["version"]
    assert project["dynamic"] == ["version", "dependencies", "optional-dependencies"]
    assert not {"python_requires", "name"} & parser["options"].keys()


def test_lint_checks_types_everywhere_and_the_floors_of_every_folder() -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    assert parser["mypy"]["files"].split(", ") == ["cgp", "models", "experiments", "tests"]
    assert "\t$(BIN)/mypy\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    floors = parser["importlinter:contract:floors"]
    assert floors.getboolean("exhaustive")
    named = set(re.findall(r"\w+", floors["layers"]))
    parts = {path.stem for path in (ROOT / "experiments").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert parts - named <= {"__init__", "__pycache__", "configs"}


def test_the_rooms_import_what_the_architecture_says() -> None:
    """The column of imports in the table of rooms, against the import statements of each room."""
    graph = grimp.build_graph("cgp", cache_dir=None)
    table = ARCHITECTURE.read_text(encoding="utf-8")
    rooms = re.findall(r"^\| `cgp/(\w+)(?:\.py)?` \| .* \| (.*) \|$", table, re.MULTILINE)
    assert len(rooms) > 10
    common = {"extras", "atomic_files"}  # optional dependencies by name, and how a file is written
    for room, listed in rooms:
        inside = {f"cgp.{room}"} | graph.find_descendants(f"cgp.{room}")
        imported = {name for module in inside for name in graph.find_modules_directly_imported_by(module)}
        others = {name.split(".")[1] for name in imported - inside if "." in name} - common
        expected = set() if listed in ("torch", "nothing of cgp") else set(listed.split(", "))
        optional = {"plotting", "comparisons"}  # pictures of results, and what all reports share
        assert others - optional == expected - optional, f"docs/ARCHITECTURE.md: {room} imports {sorted(others)}"


@pytest.mark.parametrize("part", ["cgp", "models", "experiments"])
def test_folders_of_tests_mirror_those_of_the_code(part: str) -> None:
    tests = ROOT / "tests"
    folders = {path.parent.relative_to(tests) for path in (tests / part).rglob("test_*.py")}
    assert len(folders) > 0
    assert sorted(str(folder) for folder in folders if not (ROOT / folder).is_dir()) == []


def test_pages_name_tests_that_exist() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    named = {(path, *test) for path in pages for test in TEST.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 20
    files = {file: ROOT / file for _, file, _ in named}
    texts = {file: path.read_text(encoding="utf-8") if path.exists() else "" for file, path in files.items()}
    assert [(page.name, file, test) for page, file, test in named if f"def {test}" not in texts[file]] == []
