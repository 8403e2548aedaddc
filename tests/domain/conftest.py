"""given(...).when(...).then(...): decisions of the pure core on histories that are told as events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import pytest

from counterfoil.domain.decision import Actor, Context, Payload, Step, Steps
from counterfoil.domain.event import Committed, Event, Header, Recorded
from counterfoil.domain.limits import Limits
from counterfoil.domain.lock import (
    Clockwork,
    Deadline,
    ExpiryCause,
    Lease,
    LockExpired,
    LockGranted,
    LockReleased,
    LockRevoked,
)
from counterfoil.domain.lock import evolve as evolve_lock
from counterfoil.domain.operation import (
    EntryPutBack,
    EntrySteppedOver,
    Operation,
    OperationAbandoned,
    OperationAdmitted,
    OperationClaimed,
    OperationExecutionUnknown,
    OperationSettled,
    Outcome,
    ReplyDelivered,
    ReplyDeliveryFailed,
    ReplyDeliveryUnknown,
    ReplyPhase,
    ReplyResendClaimed,
    ReplyStaged,
)
from counterfoil.domain.operation import evolve as evolve_operation
from counterfoil.domain.route import (
    Binding,
    BindingAdvanced,
    BindingOpened,
    Queue,
    evolve_binding,
    evolve_queue,
)

R = TypeVar("R")

SALT = b"s" * 32
MINUTE = 60_000_000
ROUTE = "rt-" + "0" * 32
LEASE = "lk-" + "1" * 32
SESSION = "ses-" + "2" * 32
EPOCH = 1_700_000_000_000


def committed(text: str) -> Committed:
    """What an event holds of a text, computed without the code under test."""
    body = text.encode("utf-8", "surrogatepass")
    return Committed(length=len(body), commitment=sha256(SALT + body).hexdigest())


def op(name: str) -> str:
    """The id of the operation that a test calls by a short name."""
    return "op-" + sha256(name.encode()).hexdigest()[:32]


@dataclass
class Scene:
    """
    A journal in memory: events with positions and versions in order, and the folds over them.

    Opening 1 is the one that decides. What tells the history returns the scene, so that it reads as one chain.
    """

    recorded: list[Recorded] = field(default_factory=list)
    deadlines: dict[str, Deadline] = field(default_factory=dict)
    live: set[int] = field(default_factory=lambda: {1})
    me: int = 1
    now: int = 1_700_000_000_000_000
    boot: str = "boot-a"
    boot_now: int = 5_000_000_000
    limits: Limits = field(default_factory=Limits)

    # Telling a history.

    def take(self, steps: Iterable[Step], opening: int = 1) -> Scene:
        """Append steps as the journal would: places without gaps, versions by originator, time that grows."""
        for step in steps:
            position = len(self.recorded) + 1
            version = 1 + sum(each.originator_id == step.originator_id for each in self.recorded)
            self.now += 1
            header = Header(
                opening_id=opening,
                actor_kind=step.actor_kind,
                scope_id=b"\x11" * 16,
                connection="tg",
                conversation=b"\x22" * 16,
                actor=step.actor,
                operation=None if isinstance(step.event, OperationAdmitted) else self._subject(step),
                correlation=b"\x44" * 16,
                causation=step.causation,
            )
            self.recorded.append(Recorded(position, self.now, step.originator_id, version, header, step.event))
            if isinstance(step.event, LockGranted):
                self.deadlines[step.originator_id] = Deadline(
                    step.originator_id,
                    opening,
                    b"t",
                    self.boot,
                    self.boot_now + step.event.ttl * 1_000,
                    0,
                    step.event.ttl,
                )
        return self

    def _subject(self, step: Step) -> int | None:
        return next((each.position for each in self.recorded if each.originator_id == step.originator_id), None)

    def happened(self, name: str, *events: Event, opening: int = 1) -> Scene:
        """Append events of one operation."""
        return self.take((Step(op(name), event) for event in events), opening)

    def admitted(self, *names: str, opening: int = 1, text: str = "hello") -> Scene:
        for name in names:
            event = OperationAdmitted(
                route=ROUTE,
                alias="agent",
                occurrence=0,
                principal="55" * 16,
                revision="1",
                text=committed(text),
            )
            self.take((Step(op(name), event, "person", b"\x33" * 16),), opening)
        return self

    def granted(self, opening: int = 1) -> Scene:
        """Give the route's lease to an opening, whatever stood before."""
        if self.lease is not None and self.lease.held:
            self.expired("ttl")
        return self.take((Step(LEASE, LockGranted(lock="counterfoil.route", ttl=30_000_000)),), opening)

    def released(self) -> Scene:
        return self.take((Step(LEASE, LockReleased()),))

    def expired(self, cause: ExpiryCause) -> Scene:
        return self.take((Step(LEASE, LockExpired(cause=cause)),))

    def revoked(self) -> Scene:
        return self.take((Step(LEASE, LockRevoked(reason="operator")),))

    def bound(self, leaf: str | None = None) -> Scene:
        """Open the route's binding."""
        self.take((Step(ROUTE, BindingOpened(alias="agent", generation=0, session_id=SESSION)),))
        return self if leaf is None else self.take((Step(ROUTE, BindingAdvanced(leaf=leaf)),))

    def claimed(self, name: str, opening: int = 1) -> Scene:
        """Claim an operation under the lease of this opening, which is granted when it does not hold it."""
        if self.lease is None or not self.lease.held or self.lease.opening_id != opening:
            self.granted(opening)
        assert self.lease is not None
        claim = OperationClaimed(grant=self.lease.grant, admitted_at=self.operation(name).admitted_at)
        return self.happened(name, claim, opening=opening)

    def settled(self, name: str, outcome: Outcome = "succeeded", reply: str | None = None) -> Scene:
        admitted_at = self.operation(name).admitted_at
        self.happened(name, OperationSettled(outcome=outcome, replied=reply is not None, admitted_at=admitted_at))
        if reply is not None:
            self.happened(name, ReplyStaged(kind="final", text=committed(reply), truncated=False))
        return self

    def replied(self, name: str, phase: ReplyPhase) -> Scene:
        """Settle an operation so that its reply is in this phase after one attempt."""
        self.settled(name, reply=None if phase == "none" else "answer")
        match phase:
            case "delivered":
                self.happened(name, ReplyDelivered(attempt=1, admitted_at=self.operation(name).admitted_at))
            case "delivery_failed":
                self.happened(name, ReplyDeliveryFailed(attempt=1, reason="blocked"))
            case "delivery_unknown":
                self.happened(name, ReplyDeliveryUnknown(attempt=1, reason="timeout"))
        return self

    def resent(self, name: str) -> Scene:
        attempt = self.operation(name).attempts + 1
        return self.happened(name, ReplyResendClaimed(attempt=attempt, acknowledged=True, reason="operator"))

    def abandoned(self, name: str) -> Scene:
        return self.happened(name, OperationAbandoned(reason="operator", acknowledged=False))

    def unknown(self, name: str) -> Scene:
        return self.happened(name, OperationExecutionUnknown(reason="stop", acknowledged=False, forced=False))

    def stepped_over(self, name: str) -> Scene:
        return self.happened(name, EntrySteppedOver())

    def put_back(self, name: str, opening: int = 1) -> Scene:
        return self.happened(name, EntryPutBack(route=ROUTE), opening=opening)

    # Setting the world.

    def alive(self, *openings: int) -> Scene:
        """Say which openings live, beside the one that decides."""
        self.live = {self.me, *openings}
        return self

    def later(self, microseconds: int) -> Scene:
        """Let time pass on both clocks."""
        self.now += microseconds
        self.boot_now += microseconds * 1_000
        return self

    def rebooted(self) -> Scene:
        self.boot, self.boot_now = "boot-b", 0
        return self

    def within(self, **limits: int | str) -> Scene:
        self.limits = replace(self.limits, **limits)  # type: ignore[arg-type]
        return self

    def seen_by(self, opening: int) -> Scene:
        """Let another opening decide."""
        self.me = opening
        self.live.add(opening)
        return self

    # What the history comes to.

    def operation(self, name: str) -> Operation:
        state: Operation | None = None
        for each in self.recorded:
            if each.originator_id == op(name):
                state = evolve_operation(state, each)
        assert state is not None
        return state

    @property
    def queue(self) -> Queue:
        state = Queue(ROUTE)
        for each in self.recorded:
            state = evolve_queue(state, each)
        return state

    @property
    def queued(self) -> list[str]:
        return [entry.operation_id for entry in self.queue.entries]

    @property
    def lease(self) -> Lease | None:
        state: Lease | None = None
        for each in self.recorded:
            if each.originator_id == LEASE:
                state = evolve_lock(state, each)
        return None if state is None else state._replace(epoch=EPOCH)

    @property
    def binding(self) -> Binding | None:
        state: Binding | None = None
        for each in self.recorded:
            if each.originator_id == ROUTE:
                state = evolve_binding(state, each)
        return state

    @property
    def deadline(self) -> Deadline | None:
        return self.deadlines.get(LEASE)

    @property
    def fence(self) -> int:
        """The fence of the newest grant."""
        assert self.lease is not None
        return self.lease.fence

    @property
    def world(self) -> Clockwork:
        return Clockwork(self.me, self.boot, self.boot_now, frozenset(self.live).__contains__)

    @property
    def context(self) -> Context:
        return Context(self.now, self.world, lambda: SALT, self.limits)

    # Deciding.

    def when(self, decide: Callable[[Scene], R]) -> Decided[R]:
        """Decide something on this history."""
        return Decided(self, decide(self))


def steps_of(result: object) -> Steps:
    """The steps in whatever a decision returns: alone, as the last part of a tuple, or as an attribute."""
    if isinstance(result, str):
        return ()
    if isinstance(result, tuple) and all(isinstance(each, Step) for each in result):
        return result
    if hasattr(result, "steps"):
        steps: Steps = result.steps
        return steps
    assert isinstance(result, tuple)
    parts = [part for part in result if not isinstance(part, bool | None)]
    return steps_of(next(part for part in parts if hasattr(part, "steps") or type(part) is tuple))


@dataclass
class Decided(Generic[R]):
    """What was decided, before it is appended."""

    scene: Scene
    result: R

    @property
    def steps(self) -> Steps:
        return steps_of(self.result)

    @property
    def events(self) -> list[Event]:
        return [step.event for step in self.steps]

    @property
    def payloads(self) -> list[Payload]:
        return [step.payload for step in self.steps if step.payload is not None]

    def then(self, *events: Event) -> Scene:
        """Expect exactly these events, append them, and return the history with them."""
        assert list(events) == self.events
        return self.scene.take(self.steps, self.scene.me)


Given: TypeAlias = Callable[[], Scene]

OPERATOR = Actor("operator", b"\x66" * 16)


@dataclass(frozen=True)
class Names:
    """The constants of every scene, and what its short names stand for."""

    route: str = ROUTE
    lease: str = LEASE
    session: str = SESSION
    epoch: int = EPOCH
    minute: int = MINUTE
    salt: bytes = SALT
    operator: Actor = OPERATOR
    op: Callable[[str], str] = op
    committed: Callable[[str], Committed] = committed


@pytest.fixture(scope="session")
def given() -> Given:
    """Begin an empty history."""
    return Scene


@pytest.fixture(scope="session")
def names() -> Names:
    return Names()


@pytest.fixture(scope="session")
def document() -> str:
    """The description of the format."""
    return (Path(__file__).parents[2] / "docs" / "format.md").read_text("utf-8")
