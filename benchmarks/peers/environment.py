"""The virtual environments that the peers live in, apart from redisq's own: they disagree about redis-py."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import click

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = ROOT / ".venv-peers"
OURS = ("redisq", "limit")
REQUIREMENTS = {
    "requirements.txt": ("rq", "streaq", "dramatiq", "taskiq", "celery", "huey", "bullmq", "docket"),
    "requirements-redis5.txt": ("arq", "saq"),
}
PEERS = tuple(sorted(peer for peers in REQUIREMENTS.values() for peer in peers))


def python_of(name: str) -> str:
    """The interpreter that has what the adapter of that name needs."""
    if name in OURS:
        return sys.executable
    (requirements,) = (file for file, peers in REQUIREMENTS.items() if name in peers)
    return str(_made(HERE / requirements))


def _made(requirements: Path) -> Path:
    """The interpreter of an environment with these requirements, made anew when they changed."""
    folder = FOLDER / requirements.stem
    python, mark = folder / "bin" / "python", folder / "installed"
    wanted = requirements.read_text()
    if not mark.exists() or mark.read_text() != wanted:
        click.echo(f"making {folder.relative_to(ROOT)} (once, a minute or two)", err=True)
        venv.create(folder, with_pip=True, clear=True)
        (FOLDER / ".gitignore").write_text("*\n")
        _install(python, requirements)
        mark.write_text(wanted)
    return python


def _install(python: Path, requirements: Path) -> None:
    options = ("--quiet", "--disable-pip-version-check", "--no-deps")
    command: list[str | Path] = [python, "-m", "pip", "install", *options, "-r", requirements]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"the peers of {requirements.name} could not be installed:\n{done.stderr[-2000:]}")
