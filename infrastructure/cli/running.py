"""The host of `counterfoil run`: lines in, turns, replies out, a summary, and what is left for somebody to decide."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import click

from counterfoil.domain.identity import EVERY_TENANT, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.infrastructure.callbacks import Agent, Authorize, Deliver
from counterfoil.infrastructure.journal_async import AsyncJournal, open_async
from counterfoil.infrastructure.naming import is_postgres
from counterfoil.infrastructure.runtime import Runtime
from counterfoil.projections.timeline import TimelineFilter

from .advice import GRANTS, as_argument, reconcile_command, what_it_is
from .desk import operator
from .failures import Failures
from .feeder import RETRIES, RETRIES_OF_A_SERVER, Feeder, Tally
from .lines import Lines
from .named_files import Source
from .printing import PAGE, print_json, print_table
from .signals import INTERRUPTED
from .stopping import Stop

PROGRESS_SECONDS: Final = 5.0
TROUBLE_SECONDS: Final = 20.0
"""How long a run that has read everything goes on while the journal takes nothing."""
STEPS: Final = ("admitted", "completed", "failed", "cancelled")
"""The counters that tell that something has been done."""
SHORT_STOP: Final = timedelta(seconds=5)
"""How long a stop waits when the journal takes nothing: what it waits for are records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What a run was told on the command line."""

    journal: str
    agent: Agent
    deliver: Deliver
    authorize: Authorize
    limits: Limits
    deliver_timeout: timedelta
    create: bool
    resume: bool
    granted: bool
    """Who may write is named in a file; otherwise everybody may, in one scope alone."""
    sending: Sequence[str]
    """The options with which a reply is sent again, as they were given."""


def _runtime(journal: AsyncJournal, host: Host) -> Runtime:
    async def resolve_agent(_alias: str, _identity: Identity, _inbound: Inbound) -> Agent:
        return host.agent

    return Runtime(
        journal,
        authorize=host.authorize,
        resolve_agent=resolve_agent,
        deliver=host.deliver,
        deliver_timeout=host.deliver_timeout,
    )


async def run_host(host: Host, source: Source, *, as_json: bool) -> int:
    """Run until the lines have ended and all is done, or until a stop; print the summary, and return the exit status."""
    with Stop() as stop, Failures() as failures:
        host = replace(host, agent=failures.told_of(host.agent))
        async with open_async(host.journal, create=host.create, limits=host.limits) as journal:
            runtime = _runtime(journal, host)
            feeder = Feeder(runtime, Lines(source), stop, RETRIES_OF_A_SERVER if is_postgres(host.journal) else RETRIES)
            since = await journal.position()
            try:
                await _work(host, runtime, feeder, stop)
            finally:
                if feeder.tally.cut_short:
                    journal.core.use_limits(replace(host.limits, stop_deadline=SHORT_STOP))
                await runtime.stop(keep_queued=True)
            unresolved = await _say_unresolved(host, journal)
            await _say_unknown(host, journal, since)
            _print_summary(feeder.tally, runtime, unresolved, as_json=as_json)
        if stop.signal is not None:
            return INTERRUPTED if stop.signal == 2 else 0
        return 0 if feeder.tally.all_well else 1


async def _work(host: Host, runtime: Runtime, feeder: Feeder, stop: Stop) -> None:
    if host.resume and not stop.asked:
        # Without grants all that runs is what is in the one scope in which everybody is granted: anything else would be refused.
        await runtime.resume(operator(), tenant=EVERY_TENANT if host.granted else None)
    feeding = asyncio.create_task(feeder.feed(), name="counterfoil-feeder")
    progress = _Progress(runtime, feeder.tally)
    try:
        await _until_done(feeding, stop, progress)
        if feeding.done():
            feeding.result()
    finally:
        if not feeding.done():
            await runtime.stop(keep_queued=True)  # an admission under way ends, and no further one begins
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
    if not stop.asked and not feeder.tally.cut_short:
        draining = asyncio.create_task(runtime.drain(), name="counterfoil-drain")
        try:
            await _until_done(draining, stop, progress)
            if not stop.asked and not draining.done():
                feeder.tally.cut_short = True
                click.echo("the journal takes nothing; what is not recorded is listed, or runs with the next run", err=True)
        finally:
            draining.cancel()
            await asyncio.gather(draining, return_exceptions=True)


async def _until_done(task: asyncio.Task[object], stop: Stop, progress: _Progress) -> None:
    """Wait for a task, a stop, or until the journal has taken nothing for too long."""
    stopping = asyncio.create_task(stop.event.wait())
    try:
        while not (task.done() or stopping.done() or progress.troubled):
            await asyncio.wait({task, stopping}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            progress.look()
    finally:
        stopping.cancel()


class _Progress:
    """Look now and then at how far a run is: say it on a terminal, and notice when nothing moves because the store fails."""

    def __init__(self, runtime: Runtime, tally: Tally) -> None:
        self._runtime = runtime
        self._tally = tally
        self._says = sys.stderr.isatty() and not sys.stdout.isatty()
        now = asyncio.get_running_loop().time()
        self._said = self._moved = now
        self._seen = (0, 0)

    @property
    def troubled(self) -> bool:
        return asyncio.get_running_loop().time() - self._moved > TROUBLE_SECONDS

    def look(self) -> None:
        now = asyncio.get_running_loop().time()
        counters = self._runtime.journal.diagnostics()
        steps = sum(counters[name] for name in STEPS) + sum(self._runtime.sendings.values())
        failures = counters["storage_failures"]
        if steps != self._seen[0] or failures == self._seen[1]:
            self._moved = now
        self._seen = (steps, failures)
        if self._says and now - self._said >= PROGRESS_SECONDS:
            self._said = now
            ended = counters["completed"] + counters["failed"] + counters["cancelled"]
            waiting = counters["queued"] + counters["active"]
            click.echo(f"{self._tally.lines:,} lines read, {ended:,} turns ended, {waiting:,} waiting", err=True)


async def _say_unresolved(host: Host, journal: AsyncJournal) -> int:
    """Tell what is left when this run has ended, with the command for each, and return how many there are."""
    own = journal.core.engine.opening_id
    desk, local = journal.acting_as(operator(), tenant=EVERY_TENANT), journal.acting_as(operator())
    count, ungranted, after = 0, 0, None
    while True:
        page = await desk.unresolved(limit=PAGE, after=after)
        granted = {row.operation_id for row in (await local.unresolved(limit=PAGE, after=after)).rows}
        if page.rows and not count:
            click.echo("Unresolved:", err=True)
        for row in page.rows:
            ended = replace(row, holder_alive=False) if row.holder is not None and row.holder == own else row
            is_granted = host.granted or row.operation_id in granted
            ungranted += not is_granted and ended.state == "accepted" and ended.holder_alive is False
            click.echo(f"{row.operation_id} {what_it_is(ended, granted=is_granted)}", err=True)
            sending = host.sending if is_granted else (*host.sending, *GRANTS)
            click.echo(f"  {reconcile_command(host.journal, row, sending)}", err=True)
        count += len(page.rows)
        after = page.next
        if after is None:
            break
    if ungranted:
        wait = "operation of another tenant waits" if ungranted == 1 else "operations of other tenants wait"
        click.echo(f"{ungranted:,} {wait}, because nobody is granted there without --grants.", err=True)
    return count


async def _say_unknown(host: Host, journal: AsyncJournal, since: int) -> None:
    """Tell which turns this run has given up on: the summary has no word for them, and nothing of them is left to decide."""
    own = journal.core.engine.opening_id
    desk = journal.acting_as(operator(), tenant=EVERY_TENANT)
    where = TimelineFilter(types=("operation.execution_unknown",), after=since)
    given_up: list[str] = []
    after = None
    while True:
        page = await desk.timeline(where, limit=PAGE, after=after)
        ours = (entry for entry in page.rows if entry.opening_id == own and entry.actor_kind != "operator")
        given_up += (entry.operation_id for entry in ours if entry.operation_id is not None)
        after = page.next
        if after is None:
            break
    if given_up:
        what = "1 turn" if len(given_up) == 1 else f"{len(given_up):,} turns"
        click.echo(f"{what} did not end when told to, and nobody knows what was done; filed as execution_unknown:", err=True)
        for operation_id in given_up:
            click.echo(f"  {shlex.join(('counterfoil', 'explain', as_argument(host.journal), operation_id))}", err=True)


def _print_summary(tally: Tally, runtime: Runtime, unresolved: int, *, as_json: bool) -> None:
    counters, sendings = runtime.journal.diagnostics(), runtime.sendings
    summary = {
        "accepted": tally.accepted,
        "duplicates": tally.duplicates,
        "denied": tally.denied,
        "malformed": tally.malformed,
        "succeeded": counters["completed"],
        "failed": counters["failed"],
        "cancelled": counters["cancelled"],
        "delivered": sendings["delivered"],
        "delivery_failed": sendings["delivery_failed"],
        "delivery_unknown": sendings["delivery_unknown"],
        "unresolved": unresolved,
    }
    if as_json:
        print_json(summary)
    else:
        print_table(("summary", "#"), ((name.replace("_", " "), count) for name, count in summary.items()))
