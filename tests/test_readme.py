"""The examples of the README run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(example: str) -> None:
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})


def test_a_host_in_twenty_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(EXAMPLES[0])

    assert capsys.readouterr().out.startswith("chat-1 You said 'hello', and this is session ses-")


def test_the_same_journal_without_asyncio(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(EXAMPLES[1])
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].endswith(" accepted 1")
    assert lines[1] == "abandoned"
    assert [line.rsplit(" ", 1)[1] for line in lines[2:]] == ["operation.admitted", "operation.abandoned"]


def test_one_summary_at_a_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The late worker is refused, and what the other wrote stands."""
    run(EXAMPLES[2])

    assert capsys.readouterr().out == "too late: ttl\n[('They meet on Tuesday.',)]\n"
    run(EXAMPLES[2])
    assert capsys.readouterr().out == "too late: ttl\n[('They meet on Tuesday.',)]\n", "again, on the same file"


def test_a_key_without_asyncio(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(EXAMPLES[3])
    lines = capsys.readouterr().out.splitlines()

    assert lines[:2] == ["importing tea", "importing coffee"]
    assert [line.split()[0] for line in lines[2:]] == ["granted", "released"]


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == 4
