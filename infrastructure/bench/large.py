"""A large journal, built by whole turns in large groups, and how long it takes to open and close it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from counterfoil.domain.turn import Answer, Delivery

from ..commands.admission import AdmitInbound, Admitted
from ..commands.turn import Claim, Mark, Settle
from ..core import Core
from ..journal import open as open_journal
from ..unit import Unit
from . import workload
from .results import Sample

IN_FLIGHT: Final = 512
"""Turns that are queued at once."""


@dataclass(frozen=True, slots=True)
class RestOfTurn:
    """A turn from claim to delivery in one append. Only a bench may do this: it tells of a run that never was."""

    admitted: Admitted

    def run(self, unit: Unit) -> int:
        """Return the position of the head afterwards."""
        assert self.admitted.route is not None
        claimed = Claim(self.admitted.route, self.admitted.position).run(unit)
        assert claimed.operation is not None and claimed.fence is not None
        operation_id = claimed.operation.operation_id
        Settle(operation_id, claimed.fence, Answer("succeeded", reply=workload.TEXT)).run(unit)
        Mark(operation_id, 1, Delivery("delivered"), claimed.fence).run(unit)
        return unit.head.position


def build(path: Path, events: int, progress: Callable[[int], None]) -> int:
    """Make a journal of at least so many events, and return how many it has. `progress` is told how many are there."""
    core = Core(path, limits=workload.LIMITS)
    submit = core.committer.submit
    number = position = 0
    try:
        while position < events:
            progress(position)
            admissions = [
                submit(AdmitInbound(workload.inbound(number + each), workload.GRANT, "agent")) for each in range(IN_FLIGHT)
            ]
            number += IN_FLIGHT
            rests = [submit(RestOfTurn(admission.result())) for admission in admissions]
            position = max(rest.result() for rest in rests)
    finally:
        core.close()
    return position


def opening(path: Path, *, count: int) -> Sample:
    """Measure opening for writing, and closing."""
    times = []
    for _ in range(count):
        began = perf_counter()
        with open_journal(path):
            pass
        times.append(perf_counter() - began)
    return {"median": median(times) * 1e3}
