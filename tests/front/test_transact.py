"""Transactions of a host: its own tables and what it appends commit together, or not at all."""

from __future__ import annotations

import concurrent.futures
import contextvars
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import counterfoil
from counterfoil.infrastructure.admitting import admit_command
from counterfoil.infrastructure.commands.admission import Admitted
from counterfoil.infrastructure.committer import Command
from counterfoil.infrastructure.sqlite import engine
from tests.rows import is_there

if TYPE_CHECKING:
    from tests.conftest import FreshURL
    from tests.engines import Engine
    from tests.front.conftest import Begin, OneGroup, Spell

PERSON = counterfoil.Identity(tenant="acme", user="ann", principal="ann", verified=True)
GRANT = counterfoil.Grant(identity=PERSON, aliases=["helper"])


def inbound(event_id: str, actor: str = "ann", text: str = "hello") -> counterfoil.Inbound:
    return counterfoil.Inbound(connection="tg", conversation="c", actor=actor, event_id=event_id, text=text)


def message(event_id: str, actor: str = "ann", text: str = "hello") -> counterfoil.Admit:
    return counterfoil.Admit(inbound(event_id, actor, text), GRANT)


def make_orders(tx: counterfoil.Tx) -> None:
    tx.execute("CREATE TABLE orders (id INTEGER, item TEXT UNIQUE)")


def order(tx: counterfoil.Tx, item: str) -> int:
    return tx.execute(f"INSERT INTO orders SELECT count(*), '{item}' FROM orders").rowcount


def orders(journal: counterfoil.Journal) -> list[str]:
    return [item for (item,) in journal.transact(lambda tx: tx.execute("SELECT item FROM orders ORDER BY id").rows)]


@pytest.fixture
def shop(journal: counterfoil.Journal) -> Iterator[counterfoil.Journal]:
    """A journal with a table of the host's, in which nothing has happened."""
    journal.transact(make_orders)
    yield journal
    assert journal.verify().agrees


# What it does.


@pytest.mark.contract("JRN-17", "JRN-03")
def test_rows_of_the_host_and_events_commit_together(shop: counterfoil.Journal, engine: Engine) -> None:
    def body(tx: counterfoil.Tx) -> counterfoil.Admission:
        order(tx, "tea")
        return tx.append(message("1"))

    admission = shop.transact(body)

    assert "accepted" == admission.status
    assert admission.position == (shop.position() if engine == "sqlite" else None), "PostgreSQL gives it in the commit"
    assert ["tea"] == orders(shop)
    assert shop.admit(inbound("1"), GRANT).duplicate


def test_a_statement_gives_its_rows_and_what_it_changed(shop: counterfoil.Journal, spell: Spell) -> None:
    def body(tx: counterfoil.Tx) -> list[Any]:
        inserted = tx.execute(spell("INSERT INTO orders (id, item) VALUES (:id, :item)"), {"id": 7, "item": "tea"})
        returned = tx.execute(spell("INSERT INTO orders (item) VALUES (?), (?) RETURNING item"), ["milk", "salt"])
        updated = tx.execute("UPDATE orders SET item = item || '!'")
        return [inserted.rowcount, inserted.rows, returned.rows, returned.rowcount, updated.rowcount, updated.rows]

    assert [1, [], [("milk",), ("salt",)], 2, 3, []] == shop.transact(body)
    assert "tea" not in repr(shop.transact(lambda tx: tx.execute("SELECT * FROM orders")))


@pytest.mark.sqlite_only("rows are numbered by SQLite")
def test_a_statement_gives_the_number_of_the_row_that_it_inserted(shop: counterfoil.Journal) -> None:
    def body(tx: counterfoil.Tx) -> int | None:
        tx.execute("CREATE TABLE numbered (id INTEGER PRIMARY KEY, item TEXT)")
        return tx.execute("INSERT INTO numbered VALUES (7, 'tea')").lastrowid

    assert 7 == shop.transact(body)


def test_a_body_may_return_anything(shop: counterfoil.Journal, spell: Spell) -> None:
    large = "x" * 10_000_000

    assert large == shop.transact(lambda tx: tx.execute(spell("SELECT ?"), (large,)).rows[0][0])
    assert shop.transact(lambda tx: None) is None


def test_a_transaction_without_events_leaves_no_trace_of_its_opening(shop: counterfoil.Journal) -> None:
    shop.transact(lambda tx: order(tx, "tea"))

    assert 0 == shop.position()


def test_a_body_sees_the_context_of_its_caller(shop: counterfoil.Journal) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    variable.set("the caller's")

    assert "the caller's" == shop.transact(lambda tx: variable.get())


@pytest.mark.sqlite_only("the log is a file of SQLite's")
def test_rows_of_the_host_count_for_when_the_log_is_written_back(journal_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log does not grow until events have gathered, of which there may be none."""
    monkeypatch.setattr(engine, "CHECKPOINT_FRAMES", 50)
    with counterfoil.open(journal_url) as journal:
        journal.transact(make_orders)

        def body(tx: counterfoil.Tx) -> None:
            for _ in range(100):
                order(tx, secrets.token_hex(2_000))

        for _ in range(10):
            journal.transact(body)

        assert Path(f"{journal_url}-wal").stat().st_size < 2_000_000, "one transaction is 0.4 MB and more"


@pytest.mark.parametrize("text", [7, None, b"SELECT 1"])
def test_sql_is_text(shop: counterfoil.Journal, text: object) -> None:
    with pytest.raises(counterfoil.InvalidValue, match="sql must be text"):
        shop.transact(lambda tx: tx.execute(text))  # type: ignore[arg-type]


@pytest.mark.contract("JRN-17")
def test_tables_of_the_host_outlive_an_opening(journal_url: str) -> None:
    with counterfoil.open(journal_url) as journal:
        journal.transact(make_orders)
        journal.transact(lambda tx: order(tx, "tea"))
        assert 0 == journal.position()
    with counterfoil.open(journal_url) as journal, counterfoil.open(journal_url) as second:
        second.transact(lambda tx: order(tx, "milk"))
        assert ["tea", "milk"] == orders(journal)
        assert not journal.admit(inbound("1"), GRANT).duplicate
        assert journal.verify().agrees


# What a body raises.


class Stop(BaseException):
    """Nothing that anybody catches."""


@pytest.mark.contract("JRN-04")
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        Stop(),
        KeyboardInterrupt(),
        SystemExit(3),
        sqlite3.OperationalError("mine"),
        psycopg.OperationalError("mine"),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_what_a_body_raises_is_raised_and_undoes_all_of_it(
    shop: counterfoil.Journal, one_group: OneGroup, begin: Begin, error: BaseException
) -> None:
    def body(tx: counterfoil.Tx) -> None:
        order(tx, "tea")
        tx.execute("CREATE TABLE more (x INTEGER)")
        assert "accepted" == tx.append(message("2")).status
        raise error

    with one_group(shop):
        before = shop.core.committer.submit(admission("1"))
        failing = begin(shop, body)
        after = shop.core.committer.submit(admission("3"))
        other = begin(shop, lambda tx: order(tx, "milk"))
    with pytest.raises(type(error)) as raised:
        failing.result(30)

    assert error is raised.value
    assert [3, 4] == [future.result(30).admission.position for future in (before, after)], "the positions are the neighbours'"
    assert 1 == other.result(30)
    assert ["milk"] == orders(shop)
    assert not shop.admit(inbound("2"), GRANT).duplicate
    with pytest.raises(type(error)) as raised:
        shop.transact(body)
    assert error is raised.value


def admission(event_id: str) -> Command[Admitted]:
    return admit_command(inbound(event_id), GRANT, None)


@pytest.mark.contract("JRN-04")
def test_an_error_of_the_hosts_statement_is_the_hosts(
    shop: counterfoil.Journal, one_group: OneGroup, begin: Begin, driver: Any
) -> None:
    calls = []

    def body(tx: counterfoil.Tx) -> None:
        calls.append(order(tx, "tea"))
        order(tx, "tea")

    with one_group(shop):
        before = shop.core.committer.submit(admission("1"))
        failing = begin(shop, body)
    with pytest.raises(driver.IntegrityError, match=r"(?i)unique.*orders.*item"):
        failing.result(30)

    assert 1 == len(calls)
    assert "accepted" == before.result(30).admission.status
    assert [] == orders(shop)


def test_a_body_may_go_on_after_an_error_of_its_statement(shop: counterfoil.Journal, driver: Any, spell: Spell) -> None:
    def body(tx: counterfoil.Tx) -> None:
        order(tx, "tea")
        with pytest.raises(driver.IntegrityError):
            order(tx, "tea")
        with pytest.raises(driver.ProgrammingError):
            tx.execute(spell("SELECT ?"), ())
        with pytest.raises(driver.DatabaseError, match=r"no such table|does not exist"):
            tx.execute("SELECT * FROM nowhere")
        order(tx, "milk")

    shop.transact(body)

    assert ["tea", "milk"] == orders(shop)


ENDS = "INSERT OR ROLLBACK INTO orders (item) VALUES ('tea')"
ENDS_ALL = pytest.mark.sqlite_only("a statement can end the transaction of all on SQLite")


def raise_it(tx: counterfoil.Tx) -> None:
    tx.execute(ENDS)


def swallow_it(tx: counterfoil.Tx) -> None:
    try:
        tx.execute(ENDS)
    except sqlite3.IntegrityError:
        return


def go_on(tx: counterfoil.Tx) -> None:
    swallow_it(tx)
    for use in (partial(order, tx, "salt"), partial(tx.append, message("x"))):
        with pytest.raises(counterfoil.Closed, match="the transaction has ended"):
            use()


@ENDS_ALL
@pytest.mark.contract("JRN-04")
@pytest.mark.parametrize("end", [raise_it, swallow_it, go_on])
def test_a_statement_that_ends_the_transaction_of_all_costs_the_neighbours_nothing(
    shop: counterfoil.Journal, one_group: OneGroup, begin: Begin, end: Callable[[counterfoil.Tx], None]
) -> None:
    """SQLite rolls back the whole group then; each is taken again alone, so a body may be called twice."""
    shop.transact(lambda tx: order(tx, "tea"))
    calls = []

    def neighbour(tx: counterfoil.Tx) -> None:
        calls.append("neighbour")
        order(tx, "milk")

    def body(tx: counterfoil.Tx) -> None:
        calls.append("body")
        tx.append(message("2"))
        end(tx)

    with one_group(shop):
        first = shop.core.committer.submit(admission("1"))
        other = begin(shop, neighbour)
        failing = begin(shop, body)
        last = shop.core.committer.submit(admission("3"))
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        failing.result(30)
    other.result(30)

    assert [3, 4] == [future.result(30).admission.position for future in (first, last)]
    assert ["neighbour", "body", "neighbour", "body"] == calls
    assert ["tea", "milk"] == orders(shop)
    assert not shop.admit(inbound("2"), GRANT).duplicate


@ENDS_ALL
def test_an_error_of_the_body_is_raised_rather_than_the_one_that_ended_its_transaction(shop: counterfoil.Journal) -> None:
    shop.transact(lambda tx: order(tx, "tea"))

    def body(tx: counterfoil.Tx) -> None:
        swallow_it(tx)
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        shop.transact(body)
    assert ["tea"] == orders(shop)


# Appending.


@pytest.mark.contract("JRN-05")
def test_admissions_are_checked_as_those_of_the_journal_are(url: str) -> None:
    late = GRANT.model_copy(update={"identity": PERSON.model_copy(update={"verified": False})})
    with counterfoil.open(url, limits=counterfoil.Limits(max_input_bytes=10)) as journal:

        def body(tx: counterfoil.Tx) -> list[Any]:
            answers = [
                tx.append(message("1")),
                tx.append(message("1")),
                tx.append(message("2", text="x" * 11)),
                tx.append(message("3", text="/new")),
                tx.append(counterfoil.Admit(inbound("4"), late)),
                tx.append(counterfoil.Admit(inbound("5"), GRANT, command_id="once")),
                tx.append(counterfoil.Admit(inbound("5"), GRANT, command_id="once")),
            ]
            with pytest.raises(counterfoil.CommandConflict):
                tx.append(counterfoil.Admit(inbound("6"), GRANT, command_id="once"))
            return [(answer.status, answer.reason, answer.duplicate) for answer in answers]

        assert [
            ("accepted", None, False),
            ("accepted", None, True),
            ("denied", "oversized", False),
            ("unsupported", "unknown_command", False),
            ("denied", "revoked", False),
            ("accepted", None, False),
            ("accepted", None, False),
        ] == journal.transact(body)
        numbers = journal.diagnostics()
        assert (4, 1, 2, 1) == tuple(numbers[name] for name in ("admitted", "duplicates", "denied", "unsupported"))
        assert not journal.admit(inbound("6"), GRANT).duplicate
        assert journal.verify().agrees


def test_a_refused_admission_undoes_itself_alone(url: str, engine: Engine) -> None:
    """Not the appends before it, not the host's rows, and the capacity that is left is counted rightly."""
    limits = counterfoil.Limits(max_pending_per_binding=2, max_pending_per_process=3)
    with counterfoil.open(url, limits=limits) as journal:
        journal.transact(make_orders)

        def body(tx: counterfoil.Tx, *, fail: bool) -> list[Any]:
            order(tx, "tea")
            sent = [("1", "ann"), ("2", "ann"), ("3", "ann"), ("4", "bob"), ("5", "bob"), ("6", "cid")]
            answers = [tx.append(message(event_id, actor)).reason for event_id, actor in sent]
            order(tx, "milk")
            if fail:
                raise ValueError("no")
            return answers

        with pytest.raises(ValueError, match="no"):
            journal.transact(partial(body, fail=True))
        begun = 0 if engine == "sqlite" else 2
        assert begun == journal.position(), "on PostgreSQL the opening has begun by itself"
        assert 0 == sum(journal.diagnostics().values()), "what was not committed counts for nothing"

        assert [None, None, "capacity", None, "capacity", "capacity"] == journal.transact(partial(body, fail=False))
        assert ["tea", "milk"] == orders(journal)
        assert 5 == journal.position()
        assert "capacity" == journal.admit(inbound("7", "dan"), GRANT).reason
        assert journal.verify().agrees
        unresolved = journal.acting_as(PERSON).unresolved().rows
        assert 3 == len(unresolved)


@pytest.mark.no_engine("nothing is appended yet")
@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: counterfoil.Admit({"text": "hello"}, GRANT), "inbound must be an Inbound, not dict"),  # type: ignore[arg-type]
        (lambda: counterfoil.Admit(inbound("1"), PERSON), "grant must be a Grant, not Identity"),  # type: ignore[arg-type]
        (lambda: counterfoil.Admit(inbound("1"), GRANT, ""), "command_id must be 1 to 128 bytes"),
    ],
)
def test_an_admission_of_something_else_is_refused_by_name(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(counterfoil.InvalidValue, match=complaint):
        make()


def test_only_admissions_are_appended(shop: counterfoil.Journal) -> None:
    with pytest.raises(counterfoil.InvalidValue, match=r"takes a counterfoil.Admit or Settle, not Inbound"):
        shop.transact(lambda tx: tx.append(inbound("1")))  # type: ignore[call-overload]


@pytest.mark.no_engine("nothing is appended yet")
def test_nothing_is_shown_of_an_admission() -> None:
    assert "hello" not in repr(message("1"))
    assert "ann" not in repr(message("1"))


# Calls of a journal inside.


@pytest.mark.parametrize(
    "call",
    [
        lambda journal, url: journal.admit(inbound("1"), GRANT),
        lambda journal, url: journal.position(),
        lambda journal, url: journal.verify(),
        lambda journal, url: journal.acting_as(PERSON).timeline(),
        lambda journal, url: journal.acting_as(PERSON).erase_scope(),
        lambda journal, url: journal.transact(lambda tx: None),
        lambda journal, url: journal.close(),
        lambda journal, url: counterfoil.open(url),
    ],
    ids=["admit", "position", "verify", "timeline", "erase", "transact", "close", "open"],
)
@pytest.mark.parametrize("swallow", [False, True], ids=["raised", "swallowed"])
def test_no_journal_is_called_inside(
    shop: counterfoil.Journal, fresh_url: FreshURL, call: Callable[[Any, str], object], swallow: bool
) -> None:
    """Neither this one nor another, and it is rolled back whatever the body makes of it."""
    other = fresh_url()
    with counterfoil.open(fresh_url()) as third:
        for journal in (shop, third):

            def body(tx: counterfoil.Tx, journal: counterfoil.Journal = journal) -> None:
                order(tx, "tea")
                try:
                    call(journal, other)
                except counterfoil.InsideTransaction:
                    if not swallow:
                        raise

            with pytest.raises(counterfoil.InsideTransaction, match="not called inside a transaction"):
                shop.transact(body)

        assert [] == orders(shop)
        assert 0 == third.position()
        assert not is_there(other)


def test_other_threads_call_the_journal_as_always(shop: counterfoil.Journal) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = shop.transact(lambda tx: pool.submit(shop.admit, inbound("1"), GRANT))

        assert "accepted" == waiting.result(30).status


def test_a_tx_is_good_inside_its_body_alone(shop: counterfoil.Journal) -> None:
    kept: list[counterfoil.Tx] = []
    refused: list[BaseException] = []

    def elsewhere(tx: counterfoil.Tx) -> None:
        try:
            order(tx, "salt")
        except counterfoil.Closed as error:
            refused.append(error)

    def body(tx: counterfoil.Tx) -> None:
        kept.append(tx)
        thread = threading.Thread(target=elsewhere, args=(tx,))
        thread.start()
        thread.join()

    shop.transact(body)
    for use in (
        lambda tx: order(tx, "tea"),
        lambda tx: tx.append(message("1")),
        lambda tx: shop.transact(lambda _: order(tx, "tea")),
    ):
        with pytest.raises(counterfoil.Closed, match="good inside its body alone"):
            use(kept[0])

    assert 1 == len(refused)
    assert [] == orders(shop)


# What is no body.


async def coroutine_function(tx: counterfoil.AsyncTx) -> None:
    await tx.execute("SELECT 1")


class Called:
    async def __call__(self, tx: counterfoil.AsyncTx) -> None:
        await tx.execute("SELECT 1")


def generator(tx: counterfoil.Tx) -> Iterator[None]:
    order(tx, "tea")
    yield


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (7, "body must be a function of tx, not int"),
        (coroutine_function, "body must be a plain function here"),
        (partial(coroutine_function), "body must be a plain function here"),
        (Called(), "body must be a plain function here"),
        (lambda tx: coroutine_function(tx), "the body returned a coroutine, of which nothing has run"),
        (generator, "the body returned a generator, of which nothing has run"),
    ],
)
def test_what_is_no_body_is_refused_by_name(shop: counterfoil.Journal, body: Any, complaint: str) -> None:
    with pytest.raises(counterfoil.InvalidValue, match=complaint):
        shop.transact(body)
    assert [] == orders(shop)


# A journal that takes no commands.


def test_it_is_refused_where_all_commands_are(journal_url: str) -> None:
    with counterfoil.open(journal_url) as journal:
        journal.transact(make_orders)
    with pytest.raises(counterfoil.Closed):
        journal.transact(lambda tx: None)
    with counterfoil.open(journal_url, readonly=True) as journal, pytest.raises(counterfoil.ReadOnly):
        journal.transact(lambda tx: None)


async def test_the_sync_colour_blocks_no_event_loop(shop: counterfoil.Journal) -> None:
    with pytest.raises(counterfoil.WrongThread):
        shop.transact(lambda tx: order(tx, "tea"))
