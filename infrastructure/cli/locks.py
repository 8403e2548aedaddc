"""`counterfoil locks`: who holds what, what happened to a key, and taking it from whoever holds it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from .desk import opened, operator
from .noun import Noun
from .options import LockKey, LockName, journal_argument, json_option, page_options
from .printing import Listing, print_json, print_table, shown

if TYPE_CHECKING:
    from counterfoil.infrastructure.journal import Journal
    from counterfoil.infrastructure.reading_locks import Holder, KeyEvent, Waiter

HOLDERS: Final = ("lock", "key", "since", "runs out in", "fence", "#opening")
WAITERS: Final = ("lock", "key", "#place", "since", "#opening")
HISTORY: Final = ("#position", "at", "what", "why", "fence", "#opening", "by")


class OfKey(click.Command):
    """A verb about one key. Ids of chats often begin with a hyphen, and then look like options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:  # which may name a part of a key
            example = f"`{ctx.command_path} JOURNAL NAME -- -100`"
            raise click.UsageError(
                f"there is no such option; write -- before a key that begins with a hyphen, as in {example}", ctx
            ) from None


@click.group(cls=Noun, invoke_without_command=True, subcommand_metavar="VERB JOURNAL [ARGUMENTS]...")
@click.pass_context
def locks(ctx: click.Context) -> None:
    """See who holds what and what happened to a key, and take it away."""
    if ctx.invoked_subcommand is None:
        ctx.fail(f"name what to do: {', '.join(locks.commands)}")


@locks.command("list")
@journal_argument()
@click.option("--lock", type=LockName(routes=True), metavar="NAME", help="Of this lock alone.")
@click.option("--waiters", "with_waiters", is_flag=True, help="Show a table of who waits too; --json always has it.")
@json_option("one JSON object with holders and waiters")
def list_(journal: str, lock: str | None, with_waiters: bool, as_json: bool) -> None:
    """
    List who holds which keys now, the oldest first.

    A lease runs out then unless it is renewed, which a holder that is well does in time. The opening is the process that has
    it. Routes, on which turns are run, are the keys of the lock counterfoil.route and shown by the ids of their leases, and so
    are keys that were erased.
    """
    with opened(journal) as (found, _):
        holders = [row for row in found.holders() if lock in (None, row.lock)]
        waiters = [row for row in found.waiters() if lock in (None, row.lock)]
    if as_json:
        print_json({"rows": [row.to_json() for row in holders], "next": None, "waiters": [row.to_json() for row in waiters]})
        return
    if holders:
        print_table(HOLDERS, (_of_holder(row) for row in holders))
    else:
        click.echo("Nobody holds a key.", err=True)
    if not with_waiters:
        return
    if waiters:
        click.echo()
        print_table(WAITERS, (_of_waiter(row) for row in waiters))
    else:
        click.echo("Nobody waits for a key.", err=True)


def _of_holder(row: Holder) -> tuple[object, ...]:
    from counterfoil.domain.lock import fence_text

    return row.lock, row.key or row.lease_id, row.since, row.remaining, fence_text(row.fence), row.opening_id


def _of_waiter(row: Waiter) -> tuple[object, ...]:
    return row.lock, row.key or row.lease_id, row.place, row.since, row.opening_id


@locks.command(cls=OfKey)
@journal_argument()
@click.argument("name", type=LockName())
@click.argument("key", type=LockKey())
@click.option("--newest-first", is_flag=True, help="Begin with the newest event.")
@json_option("one JSON object")
@page_options
def history(journal: str, name: str, key: str, newest_first: bool, as_json: bool, limit: int | None, after: str | None) -> None:
    """
    Tell what happened to one KEY of the lock NAME.

    Each lease is granted once, and then released, expired or revoked; renewals leave no trace. Its fence is larger than every
    one before. Times are in UTC. Write -- before a KEY that begins with a hyphen.
    """
    with opened(journal) as (found, _):
        lock = found.lock(name)
        listing = Listing(
            lambda most, cursor: lock.history(key, limit=most, after=cursor, newest_first=newest_first), limit, after
        )
        if as_json:
            listing.print_json(lambda row: row.to_json())
            return
        count = 0
        for page in listing.pages():
            count += len(page)
            print_table(HISTORY, (_of_event(row) for row in page))
        if not count:
            click.echo("Nothing has happened to this key.", err=True)
        listing.say_next()


def _of_event(row: KeyEvent) -> tuple[object, ...]:
    from counterfoil.domain.lock import fence_text

    why = None if row.reason is None else row.reason.replace("_", " ")
    return row.position, row.at, row.happened, why, fence_text(row.fence), row.opening_id, row.actor_kind


@locks.command(cls=OfKey)
@journal_argument()
@click.argument("name", type=LockName())
@click.argument("key", type=LockKey())
@click.option("--reason", default="operator", metavar="WORD", help="Why, as a word of a-z, 0-9 and _.  [default: operator]")
@click.option("--yes", is_flag=True, help="Do not ask first; needed where there is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a sentence.")
def release(journal: str, name: str, key: str, reason: str, yes: bool, as_json: bool) -> int:
    """
    Take one KEY of the lock NAME from its holder, and fence the holder out.

    The next in line gets the key at once. The holder is told within a moment; one that hangs is not stopped by it, but what it
    still wants to commit under a guard is refused. Who did this, when and why is one more event. Write -- before a KEY that
    begins with a hyphen.

    Exit status 0: it was held, and is free. 1: you said no. 4: another got it while you were asked. 5: nobody held it.
    """
    from counterfoil.domain.ids import checked_word

    checked_word(reason, name="reason")
    status = _release(journal, name, key, reason, ask=not yes)
    if as_json:
        print_json({"lock": name, "released": not status})
    click.echo(SAID[status], err=as_json or status != 0)
    return status


SAID: Final = {
    0: "It was taken from its holder.",
    1: "Nothing was changed.",
    4: "counterfoil locks release: another has got it while you were asked; nothing was changed; look at it again",
    5: "counterfoil locks release: nobody holds this key; `counterfoil locks list` shows what is held",
}


def _release(journal: str, name: str, key: str, reason: str, *, ask: bool) -> int:
    """Do it, after asking; returns the exit status."""
    seen = None
    if ask:
        seen = _look(journal, name, key)
        if seen is None:
            return 5
        if not _is_wanted(seen):
            return 1
    with opened(journal, readonly=False) as (found, _):
        fence = None if seen is None else seen.fence
        if found.lock(name).force_release(key, reason=reason, operator=operator(), fence=fence):
            return 0
        return 5 if seen is None or _holder_of(found, name, key) is None else 4


def _look(journal: str, name: str, key: str) -> Holder | None:
    """Return who holds the key, where there is somebody who can be asked about it."""
    if sys.stdin is None or not sys.stdin.isatty():
        context = click.get_current_context()
        raise click.UsageError("this takes a key from its holder, and there is no terminal to ask: add --yes", context)
    with opened(journal) as (found, _):
        return _holder_of(found, name, key)


def _is_wanted(holder: Holder) -> bool:
    since, left = shown(holder.since), shown(holder.remaining)
    click.echo(
        f"Opening {holder.opening_id}, which is alive, has it since {since} (UTC); it runs out in {left} unless renewed.",
        err=True,
    )
    return click.confirm("Take it away?", err=True)


def _holder_of(journal: Journal, name: str, key: str) -> Holder | None:
    return next((row for row in journal.lock(name).holders() if row.key == key), None)
