"""An opening of a journal by one process, and what operators did in it that changed no other aggregate."""

from __future__ import annotations

from .event import REGISTRY, Event
from .ids import ClassWord

# Events: the storage format.


@REGISTRY.register
class OpeningStarted(Event):
    TYPE = "opening.started"
    release: str
    process: int


@REGISTRY.register
class OpeningEpochRaised(Event):
    TYPE = "opening.epoch_raised"
    epoch: int


@REGISTRY.register
class OpeningEnded(Event):
    TYPE = "opening.ended"


@REGISTRY.register
class OperatorActed(Event):
    TYPE = "operator.acted"
    action: ClassWord


# Decisions.


def next_epoch(last: int, kept_aside: int, wall_ms: int) -> int:
    """
    Return the epoch that an opening raises: above every epoch given before, whatever was restored and wherever the clock stands.
    """
    return max(last + 1, kept_aside + 1, wall_ms)
