"""
A process that admits messages beside others: `python -m counterfoil.infrastructure.bench.admission_party`.

The first line of its standard input names the journal, and `ready` on its standard output says that it is open. The second line,
`FIRST STEP COUNT CALLERS`, says which messages are its own and how many tasks admit them; a line of JSON tells when it began and
when it ended, in nanoseconds of the steady clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from time import monotonic_ns

from ..journal_async import open_async
from . import workload
from .admissions import admit_at_once


async def main() -> None:
    async with open_async(sys.stdin.readline().rstrip("\n"), limits=workload.LIMITS) as journal:
        print("ready", flush=True)
        line = await asyncio.to_thread(sys.stdin.readline)
        first, step, count, callers = (int(word) for word in line.split())
        todo = iter([workload.inbound(first + step * number) for number in range(count)])
        began = monotonic_ns()
        await admit_at_once(journal, todo, callers)
        ended = monotonic_ns()
    print(json.dumps([began, ended]), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who has started this ends it
    asyncio.run(main())
