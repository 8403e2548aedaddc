"""Help is for people, and costs little."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from counterfoil.infrastructure.cli.group import VERBS, cli

from .conftest import Shell

pytestmark = pytest.mark.no_engine("help is of no journal")

OURS = [verb for verb in VERBS if verb != "bench"]
HEAVY = ("pydantic", "eventsourcing", "psycopg", "rich", "orjson", "sqlite3", "asyncio", "logging")


def loaded_by(folder: Path, *words: str) -> set[str]:
    """The modules that a call of the command line loads."""
    program = (
        "import sys, json\n"
        "from counterfoil.infrastructure.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    sys.stderr.write(json.dumps(sorted(sys.modules)))"
    )
    shell = Shell(folder)
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=folder, env=shell._environment, capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr))


@pytest.mark.contract("CLI-04")
@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("run", "--help"),
        ("timeline", "--help"),
        ("reconcile", "--help"),
        ("copy", "--help"),
        ("schema", "--help"),
        ("schema", "sql", "--help"),
        ("schema", "upgrade", "--help"),
    ],
)
def test_help_loads_nothing_heavy(words: tuple[str, ...], tmp_path: Path) -> None:
    """To read what can be done, neither pydantic nor eventsourcing nor rich is loaded."""
    loaded = loaded_by(tmp_path, *words)

    assert "click" in loaded
    assert not [name for name in HEAVY if name in loaded]


@pytest.mark.contract("CLI-04")
def test_listing_the_verbs_loads_none_of_them(tmp_path: Path) -> None:
    """Short helps come from a table."""
    loaded = loaded_by(tmp_path, "--help")

    assert not [verb for verb in VERBS if f"counterfoil.infrastructure.cli.{verb}" in loaded]


@pytest.mark.parametrize("verb", OURS)
def test_help_of_a_verb(verb: str, snapshot: SnapshotAssertion) -> None:
    """Each verb tells what it does, what it takes and how it ends."""
    assert snapshot == CliRunner().invoke(cli, [verb, "--help"], prog_name="counterfoil", terminal_width=100).output


def test_help_of_all(snapshot: SnapshotAssertion) -> None:
    printed = CliRunner().invoke(cli, ["--help"], prog_name="counterfoil", terminal_width=100).output

    assert snapshot == "".join(line for line in printed.splitlines(keepends=True) if "bench" not in line)


@pytest.mark.parametrize("verb", OURS)
def test_every_option_is_explained(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)

    assert command is not None
    assert command.help
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or (isinstance(parameter, click.Option) and parameter.help)


def test_no_verb_is_wrong_usage() -> None:
    result = CliRunner().invoke(cli, [], prog_name="counterfoil")

    assert 2 == result.exit_code
    assert "Verbs:" in result.stderr


def test_version() -> None:
    result = CliRunner().invoke(cli, ["--version"], prog_name="counterfoil")

    assert result.output.startswith("counterfoil ")
