"""The synchronous journal is made from the asynchronous one, and both do the same."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import counterfoil

SCRIPT = Path(__file__).parents[1] / "scripts" / "colours.py"
OLGA = counterfoil.Identity(tenant="acme", principal="olga", verified=True)
GRANT = counterfoil.Grant(identity=OLGA, aliases=["helper"])
HELLO = counterfoil.Inbound(connection="tg", conversation="c", actor="a", event_id="1", text="hello")


def test_the_synchronous_journal_is_up_to_date() -> None:
    subprocess.run([sys.executable, str(SCRIPT), "--check"], check=True)


@pytest.mark.parametrize(
    ("plain", "coroutines"), [(counterfoil.Journal, counterfoil.AsyncJournal), (counterfoil.Desk, counterfoil.AsyncDesk)]
)
def test_both_colours_have_the_same_calls(plain: type, coroutines: type) -> None:
    def public(cls: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_")
        }

    assert public(coroutines) == public(plain)


async def test_a_synchronous_wait_beside_a_running_loop_raises(tmp_path: Path) -> None:
    with counterfoil.open(":memory:") as journal, pytest.raises(counterfoil.WrongThread, match="open_async"):
        journal.admit(HELLO, GRANT)


def test_both_colours_work_on_one_file(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    with counterfoil.open(path) as journal:
        first = journal.admit(HELLO, GRANT)

    async def again() -> counterfoil.Admission:
        async with counterfoil.open_async(path) as journal:
            return await journal.admit(HELLO, GRANT)

    second = asyncio.run(again())
    assert (first.operation_id, False, True) == (second.operation_id, first.duplicate, second.duplicate)


def test_a_desk_and_a_journal_close_once(tmp_path: Path) -> None:
    journal = counterfoil.open(tmp_path / "j.sqlite")
    journal.close()
    journal.close()

    with pytest.raises(counterfoil.Closed):
        journal.admit(HELLO, GRANT)
