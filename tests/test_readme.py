"""The examples of the README run as they stand, and on PostgreSQL with another name for the journal."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines import Engine

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


Run = Callable[[int], None]
NAME = '"support.sqlite"'


@pytest.fixture
def run(tmp_path: Path, engine: Engine, journal_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run an example by its number, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(number: int) -> None:
        example = EXAMPLES[number]
        assert NAME in example
        if engine == "postgres":
            example = example.replace(NAME, repr(journal_url)).replace(" = ?", " = %s")
            example = re.sub(r"INSERT OR IGNORE (.*\))(?=\"\))", r"INSERT \1 ON CONFLICT DO NOTHING", example)
        exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})

    return run


def test_a_host_in_twenty_lines(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(0)

    assert capsys.readouterr().out.startswith("chat-1 You said 'hello', and this is session ses-")


def test_the_same_journal_without_asyncio(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(1)
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].endswith(" accepted 1")
    assert lines[1] == "abandoned"
    assert [line.rsplit(" ", 1)[1] for line in lines[2:]] == ["operation.admitted", "operation.abandoned"]


def test_one_summary_at_a_time(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The late worker is refused, and what the other wrote stands."""
    run(2)

    assert capsys.readouterr().out == "too late: ttl\n[('They meet on Tuesday.',)]\n"
    run(2)
    assert capsys.readouterr().out == "too late: ttl\n[('They meet on Tuesday.',)]\n", "again, on the same journal"


def test_a_key_without_asyncio(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(3)
    lines = capsys.readouterr().out.splitlines()

    assert lines[:2] == ["importing tea", "importing coffee"]
    assert [line.split()[0] for line in lines[2:]] == ["granted", "released"]


@pytest.mark.no_engine("it counts the examples")
def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == 4
