"""The durable record between messaging channels and agents.

A journal keeps, for each message that a channel hands to an agent and each reply that goes back, what was
admitted, who claimed it, how it was settled and what was sent. Every public name is an attribute of this
module and is imported when it is first used, so that ``import counterfoil`` stays cheap.
"""

from importlib import import_module

TYPE_CHECKING = False  # as type checkers know it, without the import of typing

# A public name stands in three places: here with its module, in __all__, and, for type checkers, in an import
# under TYPE_CHECKING.
if TYPE_CHECKING:
    from counterfoil.domain.admission import Admission
    from counterfoil.domain.errors import (
        Closed,
        CommandConflict,
        CounterfoilError,
        Denied,
        ForkedError,
        FormatUnknown,
        InvalidValue,
        JournalDamaged,
        JournalRefused,
        JournalUnavailable,
        LeaseLost,
        NeedsRuntime,
        NotAJournal,
        NotSent,
        ReadOnly,
        WrongThread,
    )
    from counterfoil.domain.exchange import AgentAnswer, DeliveryFailed, Reply, Turn
    from counterfoil.domain.identity import EVERY_TENANT, Grant, Identity
    from counterfoil.domain.inbound import Inbound
    from counterfoil.domain.limits import Limits
    from counterfoil.domain.reconcile import Reconciliation
    from counterfoil.infrastructure.journal import Desk, Journal, open
    from counterfoil.infrastructure.journal_async import AsyncDesk, AsyncJournal, open_async
    from counterfoil.infrastructure.runtime import Runtime
    from counterfoil.projections.story import Story
    from counterfoil.projections.timeline import TimelineEntry, TimelineFilter

_MODULES: dict[str, str] = {
    "Admission": "counterfoil.domain.admission",
    "AgentAnswer": "counterfoil.domain.exchange",
    "AsyncDesk": "counterfoil.infrastructure.journal_async",
    "AsyncJournal": "counterfoil.infrastructure.journal_async",
    "Closed": "counterfoil.domain.errors",
    "CommandConflict": "counterfoil.domain.errors",
    "CounterfoilError": "counterfoil.domain.errors",
    "DeliveryFailed": "counterfoil.domain.exchange",
    "Denied": "counterfoil.domain.errors",
    "Desk": "counterfoil.infrastructure.journal",
    "EVERY_TENANT": "counterfoil.domain.identity",
    "ForkedError": "counterfoil.domain.errors",
    "FormatUnknown": "counterfoil.domain.errors",
    "Grant": "counterfoil.domain.identity",
    "Identity": "counterfoil.domain.identity",
    "Inbound": "counterfoil.domain.inbound",
    "InvalidValue": "counterfoil.domain.errors",
    "Journal": "counterfoil.infrastructure.journal",
    "JournalDamaged": "counterfoil.domain.errors",
    "JournalRefused": "counterfoil.domain.errors",
    "JournalUnavailable": "counterfoil.domain.errors",
    "LeaseLost": "counterfoil.domain.errors",
    "Limits": "counterfoil.domain.limits",
    "NeedsRuntime": "counterfoil.domain.errors",
    "NotAJournal": "counterfoil.domain.errors",
    "NotSent": "counterfoil.domain.errors",
    "ReadOnly": "counterfoil.domain.errors",
    "Reconciliation": "counterfoil.domain.reconcile",
    "Reply": "counterfoil.domain.exchange",
    "Runtime": "counterfoil.infrastructure.runtime",
    "Story": "counterfoil.projections.story",
    "TimelineEntry": "counterfoil.projections.timeline",
    "TimelineFilter": "counterfoil.projections.timeline",
    "Turn": "counterfoil.domain.exchange",
    "WrongThread": "counterfoil.domain.errors",
    "open": "counterfoil.infrastructure.journal",
    "open_async": "counterfoil.infrastructure.journal_async",
}

__all__ = [
    "Admission",
    "AgentAnswer",
    "AsyncDesk",
    "AsyncJournal",
    "Closed",
    "CommandConflict",
    "CounterfoilError",
    "DeliveryFailed",
    "Denied",
    "Desk",
    "EVERY_TENANT",
    "ForkedError",
    "FormatUnknown",
    "Grant",
    "Identity",
    "Inbound",
    "InvalidValue",
    "Journal",
    "JournalDamaged",
    "JournalRefused",
    "JournalUnavailable",
    "LeaseLost",
    "Limits",
    "NeedsRuntime",
    "NotAJournal",
    "NotSent",
    "ReadOnly",
    "Reconciliation",
    "Reply",
    "Runtime",
    "Story",
    "TimelineEntry",
    "TimelineFilter",
    "Turn",
    "WrongThread",
    "open",
    "open_async",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
