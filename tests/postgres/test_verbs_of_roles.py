"""The command line as a reader and as a writer: what is listed, what is refused, and that nobody is named who connects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

import counterfoil
from counterfoil import DeliveryFailed, Grant, Identity, Inbound, Reply
from counterfoil.demo import echo
from counterfoil.infrastructure.cli.group import cli

from .logins import PASSWORD, Logins

SECRET = "marker-of-a-text"
CHAT = "marker-of-a-chat"


def run(*words: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, words, prog_name="counterfoil")
    assert status == result.exit_code, result.output
    assert "Traceback" not in result.output
    assert PASSWORD not in result.output
    assert not any("@" in line for line in _complaints(result))
    return result


def _complaints(result: Result) -> list[str]:
    """What is said to be wrong; a command that is printed to be used names its journal as it was named."""
    return [line for line in result.stderr.splitlines() if line.startswith("counterfoil") and "reconcile" not in line]


def granted(tenant: str) -> Grant:
    return Grant(identity=Identity(tenant=tenant, principal="ann", verified=True), aliases=("agent",))


def inbound(event_id: str) -> Inbound:
    return Inbound(connection="tg", conversation=CHAT, actor="ann", event_id=event_id, text=f"{SECRET}-{event_id}")


@pytest.fixture
async def told(logins: Logins) -> Logins:
    """Messages of two tenants that wait, and one of each whose reply did not arrive."""

    async def grant_for(seen: Inbound, _: str) -> Grant:
        return granted("local" if seen.event_id == "0" else "acme")

    async def agent_for(*_: Any) -> counterfoil.Agent:
        return echo

    async def deliver(_: Reply) -> DeliveryFailed:
        return DeliveryFailed("forbidden")

    async with counterfoil.open_async(logins.writer) as journal:
        async with counterfoil.Runtime(journal, authorize=grant_for, resolve_agent=agent_for, deliver=deliver) as runtime:
            for event_id in ("0", "1"):
                assert (await runtime.admit(inbound(event_id))).status == "accepted"
            await runtime.drain()
        for event_id, tenant in (("2", "local"), ("3", "acme")):
            assert (await journal.admit(inbound(event_id), granted(tenant))).status == "accepted"
    return logins


@pytest.mark.contract("CLI-02", "JRN-11")
def test_a_reader_lists_and_verifies(told: Logins) -> None:
    """The same verbs as everybody; ids of people are shown as pseudonyms, and a command has all that it needs but a password."""
    listed = json.loads(run("unresolved", told.reader, "--json").stdout)["rows"]
    assert ["succeeded", "succeeded", "accepted", "accepted"] == [row["state"] for row in listed]
    assert [False, True, False, False] == ["--grants FILE" in row["reconcile"] for row in listed]
    assert listed == [
        {**row, "age_seconds": listed[at]["age_seconds"], "reconcile": listed[at]["reconcile"]}
        for at, row in enumerate(json.loads(run("unresolved", told.writer, "--json").stdout)["rows"])
    ]
    shown = run("timeline", told.reader).stdout
    assert "conversation ~" in shown
    story = run("explain", told.reader, listed[0]["operation_id"]).stdout
    assert "~" in story.splitlines()[0]
    for verb in ("stats", "verify"):
        run(verb, told.reader)
    run("locks", "list", told.reader, "--waiters")
    everything = shown + story
    assert CHAT not in everything
    assert SECRET not in everything


@pytest.mark.contract("AUD-03", "CLI-02")
def test_a_reader_asks_for_texts(told: Logins) -> None:
    shown = run("timeline", told.reader, "--with-text").stdout
    assert f"| {SECRET}-2" in shown
    acts = json.loads(run("timeline", told.reader, "--type", "operator.acted", "--json").stdout)["rows"]
    assert 4 == len(acts)  # two texts that wait, two replies; one for each operation
    operation = acts[2]["operation_id"]
    assert f"| {SECRET}-2" in run("explain", told.reader, operation, "--with-text").stdout
    acts = json.loads(run("timeline", told.writer, "--type", "operator.acted", "--json").stdout)["rows"]
    assert {f"{told.schema}_r"} == {act["actor"] for act in acts}
    run("verify", told.reader)


@pytest.mark.contract("CLI-03", "JRN-11")
def test_what_a_reader_is_refused_is_one_line(told: Logins) -> None:
    listed = json.loads(run("unresolved", told.reader, "--json").stdout)["rows"]
    for words in (
        ("timeline", told.reader, "--actor", "ann"),
        ("timeline", told.reader, "--conversation", CHAT),
        ("explain", told.reader, "0"),
        ("locks", "history", told.reader, "jobs", "k"),
        ("locks", "release", told.reader, "jobs", "k", "--yes"),
        ("reconcile", told.reader, listed[0]["operation_id"], "--expect", str(listed[0]["version"])),
    ):
        said = run(*words, status=1)
        assert "" == said.stdout, words
        assert 1 == said.stderr.count("\n")
        assert CHAT not in said.stderr


@pytest.mark.contract("CLI-02", "JRN-11")
def test_a_writer_runs_and_reconciles(told: Logins, tmp_path_factory: pytest.TempPathFactory) -> None:
    events = tmp_path_factory.mktemp("events") / "none.jsonl"
    events.write_text("")
    echo = ("--agent", "counterfoil.demo:echo", "--deliver", "counterfoil.demo:print_reply", "--no-create")
    assert "hello" not in run("run", told.writer, "--events", str(events), *echo).stdout
    *_, left = json.loads(run("unresolved", told.writer, "--json").stdout)["rows"]
    assert "accepted" == left["state"]
    run("reconcile", told.writer, left["operation_id"], "--expect", str(left["version"]))
    assert 2 == len(json.loads(run("unresolved", told.reader, "--json").stdout)["rows"])


@pytest.mark.contract("CLI-03", "JRN-11")
def test_who_is_not_let_in_is_told_so_without_a_name(logins: Logins) -> None:
    stranger = logins.add(f"{logins.schema}_stranger")
    for verb in ("unresolved", "timeline", "stats", "verify"):
        said = run(verb, stranger, status=1)
        assert "the role may not use this schema; grant it what `counterfoil schema roles` prints" in said.stderr
        assert "stranger" not in said.stderr
