"""What lies beside a journal for its writers: their queue, the highest epoch and the highest position."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .append_lock import AppendLock, AppendQueue, MemoryAppendLock
from .descriptor import side_file
from .kept_aside import EpochFile, EpochStore, HeadFile, HighestPosition, MemoryEpoch, MemoryHead


class Beside(NamedTuple):
    """What the writer of one opening has beside its journal."""

    queue: AppendQueue
    epochs: EpochStore
    highest: HighestPosition

    def raise_epoch(self, proposed: int) -> int:
        """Keep and return an epoch above every one that was kept, this one if it is."""
        epoch = max(proposed, self.epochs.read() + 1)
        self.epochs.raise_to(epoch)
        return epoch

    def close(self) -> None:
        """Close what is open; closing again does nothing."""
        self.highest.close()
        self.queue.close()


def beside_memory() -> Beside:
    """Return what stands for the files of a journal that has none."""
    return Beside(MemoryAppendLock(), MemoryEpoch(), MemoryHead())


def beside_file(path: Path) -> Beside:
    """Open the files beside a journal, and make those that are missing. Raises `JournalRefused`."""
    queue = AppendLock(side_file(path, "append"))
    try:
        beside = Beside(queue, EpochFile(side_file(path, "epoch")), HeadFile(side_file(path, "head")))
        beside.epochs.read()  # what is garbled there is refused now, and not by the first command
        beside.highest.read()
        return beside
    except BaseException:
        queue.close()
        raise
