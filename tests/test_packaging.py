"""The result of `pip install`: only the library, typed, under one version number."""

import ast
import configparser
import email.message
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cgp

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "runs", "build", "dist", "*.egg-info", "__pycache__", "_build")


@pytest.fixture(scope="module")
def configuration() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_the_wheel_is_the_library_and_its_licence(tmp_path: Path, configuration: configparser.ConfigParser) -> None:
    """Built of a copy of the whole checkout: a build writes beside its sources."""
    source = tmp_path / "checkout"
    shutil.copytree(ROOT, source, ignore=LEFT_OUT)
    for neighbour in ("models", "experiments", "tests"):
        assert (source / neighbour).is_dir(), f"{neighbour} is not beside cgp: its absence from the wheel says nothing"
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(tmp_path)]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", *options, str(source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        metadata = email.message_from_bytes(wheel.read(f"cgp-{cgp.__version__}.dist-info/METADATA"))
        (licence,) = [name for name in names if name.endswith("/LICENSE")]
        assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    sources = {file.relative_to(ROOT).as_posix() for file in (ROOT / "cgp").rglob("*.py*") if file.suffix != ".pyc"}
    assert {name for name in names if name.startswith("cgp/")} == sources | {"cgp/py.typed"}
    assert {name.split("/")[0] for name in names} == {"cgp", f"cgp-{cgp.__version__}.dist-info"}
    check_metadata(metadata, configuration)


def check_metadata(metadata: email.message.Message, configuration: configparser.ConfigParser) -> None:
    """What is said of the project comes from pyproject.toml, what it needs from setup.cfg."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {"Name": project["name"], "Summary": project["description"], "Version": cgp.__version__}
    named |= {"Requires-Python": project["requires-python"], "License-Expression": project["license"]}
    assert {field: metadata[field] for field in named} == named
    assert metadata.get_all("Classifier") == project["classifiers"]
    extras = list(configuration["options.extras_require"])
    assert metadata.get_all("Provides-Extra") == extras
    needed = {canonicalize_name(Requirement(line).name) for line in metadata.get_all("Requires-Dist") or []}
    assert needed == {canonicalize_name(requirement.name) for requirement in requirements(configuration, *extras)}


def test_one_version_everywhere(configuration: configparser.ConfigParser) -> None:
    version = cgp.__version__
    assert configuration["metadata"]["version"] == "attr: cgp.__version__"
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == version
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d\d-\d\d$", changes, flags=re.MULTILINE)[0] == version


def requirements(configuration: configparser.ConfigParser, *extras: str) -> list[Requirement]:
    """What the library and these extras ask for."""
    optional = configuration["options.extras_require"]
    lines = "\n".join([configuration["options"]["install_requires"], *(optional[extra] for extra in extras)]).split(
        "\n"
    )
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def imported_by(package: str) -> dict[str, str]:
    """Top-level names that a package's files import, each with one file that does."""
    names = {}
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0]: path.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names[node.module.split(".")[0]] = path.name
    return names


@pytest.mark.parametrize(
    ("package", "extras"),
    [
        ("cgp", ("plot", "bayesian", "frames", "files", "vision", "text")),
        ("models", ()),
        ("experiments", ("experiments", "plot", "bayesian", "frames", "vision", "text", "benchmarks")),
    ],
)
def test_every_import_is_declared(
    configuration: configparser.ConfigParser, package: str, extras: tuple[str, ...]
) -> None:
    distributions = importlib.metadata.packages_distributions()
    allowed = {canonicalize_name(requirement.name) for requirement in requirements(configuration, *extras)}
    local = {"cgp", "models", "experiments"} | sys.stdlib_module_names
    for name, file in imported_by(package).items():
        if name not in local:
            # One that is not installed here is called as it is imported.
            provided_by = {canonicalize_name(distribution) for distribution in distributions.get(name, (name,))}
            assert provided_by & allowed, f"{package}: {file} imports {name}, which setup.cfg does not declare"


def test_every_dependency_is_pinned_inside_its_range(configuration: configparser.ConfigParser) -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in requirements(configuration, *configuration["options.extras_require"]):
        pin = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin), f"{requirement} does not admit the tested version {pin}"
