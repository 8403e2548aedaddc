"""Lines become admissions, one after the other: a feeder waits for room instead of asking again and again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import click

from counterfoil.domain.admission import Admission
from counterfoil.domain.inbound import Inbound
from counterfoil.infrastructure.runtime import Runtime

from .lines import LONGEST, Lines
from .parsing import BOM, Malformed, parse
from .stopping import Stop

RETRIES: Final = (0.1, 0.3, 1.0, 3.0)
"""Seconds between the tries to admit a line while the journal is unavailable."""
RETRIES_OF_A_SERVER: Final = (*RETRIES, *[5.0] * 24)
"""The same where the journal is on a server: two minutes, in which one is started anew, or another takes its place."""
SAID_AFTER: Final = 5.0
"""Seconds after which it is said that a line waits for room."""
IDLE: Final = ": messages wait before it that nobody runs here; without --no-resume they are run"


@dataclass(slots=True)
class Tally:
    """What became of the lines."""

    lines: int = 0
    accepted: int = 0
    duplicates: int = 0
    denied: int = 0
    malformed: int = 0
    cut_short: bool = False
    """The stream was not read to its end, and nobody had asked for that."""

    @property
    def all_well(self) -> bool:
        return not (self.denied or self.malformed or self.cut_short)


class Feeder:
    """Admit each line of a stream, in its order, until it ends, a stop is asked for, or the journal takes nothing any more."""

    def __init__(self, runtime: Runtime, lines: Lines, stop: Stop, retries: tuple[float, ...] = RETRIES) -> None:
        self._runtime = runtime
        self._lines = lines
        self._stop = stop
        self._retries = retries
        self.tally = Tally()

    async def feed(self) -> None:
        """Feed to the end. The order of a route is that of its lines, so a line that cannot be admitted ends the reading."""
        try:
            while not self._stop.asked and (batch := await self._lines.batch()) is not None:
                for line in batch:
                    if self._stop.asked or self.tally.cut_short:
                        return
                    self.tally.lines += 1
                    await self._take(line)
            if self._lines.fault is not None:
                self.tally.cut_short = True
                click.echo(f"after line {self.tally.lines}: reading failed: {self._lines.fault}", err=True)
        finally:
            self._lines.end()

    async def _take(self, line: bytes | None) -> None:
        tally = self.tally
        try:
            if line is None:
                raise Malformed(f"is longer than {LONGEST:,} bytes")
            inbound = parse(line.removeprefix(BOM) if tally.lines == 1 else line, Inbound)
        except Malformed as error:
            tally.malformed += 1
            self._say(str(error))
            return
        answer = await self._admit(inbound)
        if answer is None:
            tally.lines -= 1  # it was not taken, and comes again with the next run
        elif answer.status == "accepted":
            tally.duplicates += answer.duplicate
            tally.accepted += not answer.duplicate
        else:
            tally.denied += 1
            self._say(f"{answer.status}: {answer.reason}")
            if answer.reason == "unavailable":
                tally.cut_short = True
                self._say("the journal takes nothing, so no further line is read; run again when that is mended")

    async def _admit(self, inbound: Inbound) -> Admission | None:
        """Admit an event and wait as long as it takes; None when a stop came first."""
        retries = iter(self._retries)
        waits = False
        since: float | None = asyncio.get_running_loop().time()
        while not self._stop.asked:
            answer = await self._runtime.admit(inbound)
            if answer.reason == "capacity":
                await self._runtime.wait_for_room()
                if since is not None and asyncio.get_running_loop().time() - since > SAID_AFTER:
                    counters = self._runtime.journal.diagnostics()
                    idle = not (counters["queued"] or counters["active"])
                    self._say(f"waits for room{IDLE if idle else ''}")
                    since = None
                continue
            if answer.reason == "stopped":
                return None
            if answer.reason != "unavailable" or (pause := next(retries, None)) is None:
                return answer
            if pause > RETRIES[-1] and not waits:
                self._say("waits for the journal's server")
                waits = True
            await self._stop.within(pause)
        return None

    def _say(self, reason: str) -> None:
        click.echo(f"line {self.tally.lines}: {reason}", err=True)
