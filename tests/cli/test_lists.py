"""What people and programs read of a journal."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from typing import get_args

import pytest
from syrupy.assertion import SnapshotAssertion

from counterfoil.domain.event import ActorKind
from counterfoil.infrastructure.cli.timeline import ACTOR_KINDS, OUTCOMES
from counterfoil.projections.timeline import TimelineOutcome

from .conftest import SECRET, Shell, message

VERBS = ("unresolved", "timeline", "stats", "verify")


@pytest.fixture
def told(shell: Shell) -> Shell:
    """A journal in which this and that has happened."""
    for line in (message("1", SECRET), message("1"), message("2", "refuse", "bob"), message("3", "explode", "eve\x1b[2J")):
        shell.feed(line)  # each in a run of its own, so that the order of the events is always the same
    return shell


def test_tables(told: Shell, snapshot: SnapshotAssertion) -> None:
    """Tables hold no text, and nothing that moves the cursor of a terminal."""
    printed = told.masked("\n\n".join(told.here(verb, told.journal).output for verb in VERBS))

    assert snapshot == re.sub(" {2,}", "  ", printed)  # how wide a column is depends on how long things took
    assert SECRET not in printed
    assert "\x1b" not in printed


def test_explain_tells_a_story(told: Shell, snapshot: SnapshotAssertion) -> None:
    """By the platform's id and by ours."""
    by_event = told.here("explain", told.journal, "2").output
    (row,) = told.rows("explain", told.journal, "2")

    assert snapshot == told.masked(by_event)
    assert told.masked(by_event) == told.masked(told.here("explain", told.journal, row["operation_id"]).output)


def test_explain_of_what_is_not_known(told: Shell) -> None:
    result = told.here("explain", told.journal, "no-such-id", "--json", status=5)

    assert {"rows": [], "next": None} == json.loads(result.stdout)
    assert "no-such-id" not in result.stderr


def test_statistics_by_the_hour(told: Shell) -> None:
    printed = told.here("stats", told.journal, "--hours").stdout
    statistics = json.loads(told.here("stats", told.journal, "--json").stdout)

    assert "hour (UTC)" in printed
    assert 3 == sum(row["count"] for row in statistics["totals"] if row["measure"] == "admitted")
    assert 3 == sum(row["count"] for row in statistics["hours"] if row["measure"] == "admitted")


@pytest.mark.contract("CLI-02")
def test_lists_have_every_row_unless_they_are_bounded(shell: Shell) -> None:
    """Pages are read behind the scenes; a limit or a cursor gives the next cursor."""
    shell.feed(*(message(str(number), "nothing", f"p{number % 7}") for number in range(120)))
    everything = shell.rows("timeline", shell.journal)
    first = json.loads(shell.here("timeline", shell.journal, "--json", "--limit", "501").stdout)
    rest = json.loads(shell.here("timeline", shell.journal, "--json", "--limit", "9999", "--after", first["next"]).stdout)
    page = json.loads(shell.here("timeline", shell.journal, "--json", "--after", "10").stdout)

    assert len(everything) > 501
    assert everything == first["rows"] + rest["rows"]
    assert rest["next"] is None
    assert (everything[10:110], str(everything[109]["position"])) == (page["rows"], page["next"])
    assert everything[::-1] == shell.rows("timeline", shell.journal, "--newest-first")


def test_timeline_filters(told: Shell) -> None:
    def types(*words: str) -> set[str]:
        return {row["type"] for row in told.rows("timeline", told.journal, *words)}

    assert {"operation.admitted", "operation.repeated"} == types("--actor", "ann")
    assert {"reply.delivery_failed"} == types("--outcome", "delivery_failed")
    assert {"reply.staged", "reply.delivered"} == types("--type", "reply.staged", "--type", "reply.delivered")
    assert set() == types("--conversation", "nobody's")
    assert set() == types("--until", "2020-01-01T00:00:00Z")
    assert types() == types("--since", "2020-01-01T00:00:00Z")
    assert {"opening.started"} == types("--below", "2")
    assert {"opening.epoch_raised"} == types("--above", "1", "--below", "3", "--actor-kind", "system")


@pytest.mark.contract("AUD-03", "IDN-05")
def test_text_is_shown_when_asked_for_and_that_is_recorded(told: Shell) -> None:
    """The asking is an event of an operator; a list without text leaves no trace."""
    quiet = told.here("timeline", told.journal).stdout
    shown = told.here("timeline", told.journal, "--with-text").stdout
    told.here("explain", told.journal, "1", "--with-text")
    acts = told.rows("timeline", told.journal, "--type", "operator.acted")

    assert SECRET not in quiet
    assert f"re: {SECRET}" in shown
    assert [("operator", "text_shown")] * 2 == [(act["actor_kind"], act["detail"]["action"]) for act in acts]


@pytest.mark.sqlite_only("a file may not be written; tests/postgres has a role that may not")
@pytest.mark.contract("IDN-05")
@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs permissions as Unix has them")
def test_reading_changes_nothing(told: Shell) -> None:
    """Lists open the journal read-only, so they work on a file that may not be written, and append nothing."""
    path = told.folder / told.journal
    before = path.read_bytes()
    path.chmod(stat.S_IRUSR)
    for verb in VERBS:
        told.here(verb, told.journal, "--json")
    told.here("explain", told.journal, "1", "--json")

    assert before == path.read_bytes()


def test_unresolved_prints_the_command_for_each(told: Shell) -> None:
    """Filled in and quoted for a shell; where the way to send is not known it says so."""
    rows = told.rows("unresolved", told.journal)
    printed = told.here("unresolved", told.journal).stdout

    assert ["delivery_failed", "delivery_unknown"] == [row["reply_state"] for row in rows]
    for row, risk in zip(rows, ("", " --acknowledge-duplicate-risk"), strict=True):
        command = f"counterfoil reconcile {shlex.quote(told.journal)} {row['operation_id']} --expect {row['version']}{risk}"
        assert f"{command} --deliver MODULE:FUNCTION" == row["reconcile"]
        assert row["reconcile"] in printed


def test_unresolved_says_what_to_fill_in(shell: Shell) -> None:
    """Grants, where the operation is not in the scope of a run without."""
    grants = shell.write("grants.jsonl", {"actor": "ann", "tenant": "acme"}, {"actor": "bob", "tenant": "local"})
    shell.feed(message("1", "refuse"), message("2", "refuse", "bob"), options=(*shell.hosted, "--grants", grants))
    shell.feed(message("3", "refuse", "eve"))
    commands = [row["reconcile"] for row in shell.rows("unresolved", shell.journal)]
    told = shell.here("unresolved", shell.journal)

    ends = [" --deliver MODULE:FUNCTION --grants FILE", *[" --deliver MODULE:FUNCTION"] * 2]
    assert all(command.endswith(end) for command, end in zip(commands, ends, strict=True))
    assert all(command in told.stdout for command in commands)
    assert "--grants if it had them" in told.stderr


def test_an_empty_journal(shell: Shell) -> None:
    shell.feed()

    for verb in ("unresolved", "timeline", "stats"):
        assert "" == shell.here(verb, shell.journal).stdout
    assert 0 == json.loads(shell.here("verify", shell.journal, "--json").stdout)["position"]


@pytest.mark.no_engine("two lists of words")
def test_every_outcome_of_a_timeline_can_be_asked_for() -> None:
    """The words stand twice, so that the help needs no model."""
    assert get_args(TimelineOutcome) == OUTCOMES
    assert get_args(ActorKind) == ACTOR_KINDS
