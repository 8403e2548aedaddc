"""The durable record between messaging channels and agents.

A journal keeps, for each message that a channel hands to an agent and each reply that goes back, what was
admitted, who claimed it, how it was settled and what was sent. Every public name is an attribute of this
module and is imported when it is first used, so that ``import counterfoil`` stays cheap.
"""

TYPE_CHECKING = False  # as type checkers know it, without the import of typing

# A public name stands in three places: here with its module, in __all__, and, for type checkers, in an import
# under TYPE_CHECKING.
if TYPE_CHECKING:
    from counterfoil.domain.admission import Admission
    from counterfoil.domain.errors import (
        AlreadyHeld,
        Closed,
        CommandConflict,
        CounterfoilError,
        Denied,
        ForkedError,
        FormatUnknown,
        InsideTransaction,
        InvalidValue,
        JournalDamaged,
        JournalRefused,
        JournalUnavailable,
        LeaseLost,
        LockError,
        LockHeld,
        NeedsRuntime,
        NotAJournal,
        NotSent,
        ReadOnly,
        WrongThread,
    )
    from counterfoil.domain.exchange import Action, AgentAnswer, DeliveryFailed, Reply, Turn
    from counterfoil.domain.identity import EVERY_TENANT, Every, Grant, Identity
    from counterfoil.domain.ids import SubjectKind
    from counterfoil.domain.inbound import Inbound
    from counterfoil.domain.limits import Limits
    from counterfoil.domain.reconcile import Reconciliation
    from counterfoil.infrastructure.callbacks import Agent, Authorize, Deliver, ResolveAgent
    from counterfoil.infrastructure.clock import Clock
    from counterfoil.infrastructure.journal import Desk, Journal, open
    from counterfoil.infrastructure.journal_async import AsyncDesk, AsyncJournal, open_async
    from counterfoil.infrastructure.locks import Lease, Lock
    from counterfoil.infrastructure.locks_async import AsyncLease, AsyncLock
    from counterfoil.infrastructure.pages import Page
    from counterfoil.infrastructure.reading import Measured, Statistics, UnresolvedOperation
    from counterfoil.infrastructure.reading_locks import Holder, KeyEvent, Waiter
    from counterfoil.infrastructure.runtime import Resumed, Runtime
    from counterfoil.infrastructure.tx import Admit, AsyncTx, AsyncWithinTx, Result, Settle, Tx, WithinTx
    from counterfoil.infrastructure.verification import Check, Progress, Verification
    from counterfoil.projections.story import Story, StoryStep
    from counterfoil.projections.timeline import TimelineEntry, TimelineFilter

_MODULES: dict[str, str] = {
    "Action": "counterfoil.domain.exchange",
    "Admission": "counterfoil.domain.admission",
    "Admit": "counterfoil.infrastructure.tx",
    "Agent": "counterfoil.infrastructure.callbacks",
    "AgentAnswer": "counterfoil.domain.exchange",
    "AlreadyHeld": "counterfoil.domain.errors",
    "AsyncDesk": "counterfoil.infrastructure.journal_async",
    "AsyncJournal": "counterfoil.infrastructure.journal_async",
    "AsyncLease": "counterfoil.infrastructure.locks_async",
    "AsyncLock": "counterfoil.infrastructure.locks_async",
    "AsyncTx": "counterfoil.infrastructure.tx",
    "AsyncWithinTx": "counterfoil.infrastructure.tx",
    "Authorize": "counterfoil.infrastructure.callbacks",
    "Check": "counterfoil.infrastructure.verification",
    "Clock": "counterfoil.infrastructure.clock",
    "Closed": "counterfoil.domain.errors",
    "CommandConflict": "counterfoil.domain.errors",
    "CounterfoilError": "counterfoil.domain.errors",
    "Deliver": "counterfoil.infrastructure.callbacks",
    "DeliveryFailed": "counterfoil.domain.exchange",
    "Denied": "counterfoil.domain.errors",
    "Desk": "counterfoil.infrastructure.journal",
    "EVERY_TENANT": "counterfoil.domain.identity",
    "Every": "counterfoil.domain.identity",
    "ForkedError": "counterfoil.domain.errors",
    "FormatUnknown": "counterfoil.domain.errors",
    "Grant": "counterfoil.domain.identity",
    "Holder": "counterfoil.infrastructure.reading_locks",
    "Identity": "counterfoil.domain.identity",
    "Inbound": "counterfoil.domain.inbound",
    "InsideTransaction": "counterfoil.domain.errors",
    "InvalidValue": "counterfoil.domain.errors",
    "Journal": "counterfoil.infrastructure.journal",
    "JournalDamaged": "counterfoil.domain.errors",
    "JournalRefused": "counterfoil.domain.errors",
    "JournalUnavailable": "counterfoil.domain.errors",
    "KeyEvent": "counterfoil.infrastructure.reading_locks",
    "Lease": "counterfoil.infrastructure.locks",
    "LeaseLost": "counterfoil.domain.errors",
    "Limits": "counterfoil.domain.limits",
    "Lock": "counterfoil.infrastructure.locks",
    "LockError": "counterfoil.domain.errors",
    "LockHeld": "counterfoil.domain.errors",
    "Measured": "counterfoil.infrastructure.reading",
    "NeedsRuntime": "counterfoil.domain.errors",
    "NotAJournal": "counterfoil.domain.errors",
    "NotSent": "counterfoil.domain.errors",
    "Page": "counterfoil.infrastructure.pages",
    "Progress": "counterfoil.infrastructure.verification",
    "ReadOnly": "counterfoil.domain.errors",
    "Reconciliation": "counterfoil.domain.reconcile",
    "Reply": "counterfoil.domain.exchange",
    "ResolveAgent": "counterfoil.infrastructure.callbacks",
    "Result": "counterfoil.infrastructure.tx",
    "Resumed": "counterfoil.infrastructure.runtime",
    "Runtime": "counterfoil.infrastructure.runtime",
    "Settle": "counterfoil.infrastructure.tx",
    "Statistics": "counterfoil.infrastructure.reading",
    "Story": "counterfoil.projections.story",
    "StoryStep": "counterfoil.projections.story",
    "SubjectKind": "counterfoil.domain.ids",
    "TimelineEntry": "counterfoil.projections.timeline",
    "TimelineFilter": "counterfoil.projections.timeline",
    "Turn": "counterfoil.domain.exchange",
    "Tx": "counterfoil.infrastructure.tx",
    "UnresolvedOperation": "counterfoil.infrastructure.reading",
    "Verification": "counterfoil.infrastructure.verification",
    "Waiter": "counterfoil.infrastructure.reading_locks",
    "WithinTx": "counterfoil.infrastructure.tx",
    "WrongThread": "counterfoil.domain.errors",
    "open": "counterfoil.infrastructure.journal",
    "open_async": "counterfoil.infrastructure.journal_async",
}

__all__ = [
    "Action",
    "Admission",
    "Admit",
    "Agent",
    "AgentAnswer",
    "AlreadyHeld",
    "AsyncDesk",
    "AsyncJournal",
    "AsyncLease",
    "AsyncLock",
    "AsyncTx",
    "AsyncWithinTx",
    "Authorize",
    "Check",
    "Clock",
    "Closed",
    "CommandConflict",
    "CounterfoilError",
    "Deliver",
    "DeliveryFailed",
    "Denied",
    "Desk",
    "EVERY_TENANT",
    "Every",
    "ForkedError",
    "FormatUnknown",
    "Grant",
    "Holder",
    "Identity",
    "Inbound",
    "InsideTransaction",
    "InvalidValue",
    "Journal",
    "JournalDamaged",
    "JournalRefused",
    "JournalUnavailable",
    "KeyEvent",
    "Lease",
    "LeaseLost",
    "Limits",
    "Lock",
    "LockError",
    "LockHeld",
    "Measured",
    "NeedsRuntime",
    "NotAJournal",
    "NotSent",
    "Page",
    "Progress",
    "ReadOnly",
    "Reconciliation",
    "Reply",
    "ResolveAgent",
    "Result",
    "Resumed",
    "Runtime",
    "Settle",
    "Statistics",
    "Story",
    "StoryStep",
    "SubjectKind",
    "TimelineEntry",
    "TimelineFilter",
    "Turn",
    "Tx",
    "UnresolvedOperation",
    "Verification",
    "Waiter",
    "WithinTx",
    "WrongThread",
    "open",
    "open_async",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # here, so that the import of counterfoil loads nothing

    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
