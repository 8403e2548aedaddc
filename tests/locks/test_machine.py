"""Askings, waits, releases, revocations, deaths and time in any order, against a model of a few lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from hypothesis.strategies import booleans, integers, lists, sampled_from, tuples

from counterfoil.domain.hold import checked_terms
from counterfoil.domain.ids import lock_id
from counterfoil.infrastructure.commands.holds import Advance, ForceRelease, Granted, Held, Hold, InLine, Leave, ReleaseKey
from counterfoil.infrastructure.commands.leases import Renew
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.reading_locks import holders, waiters
from counterfoil.infrastructure.verification import verify
from tests.clocks import JournalClock
from tests.conftest import FreshURL
from tests.engines import Engine

KEYS = sampled_from(["a", "b"])
OPENINGS = sampled_from([0, 1])
PATIENT = checked_terms("jobs", "1h", None, None)
"""Its offers never pass here, so nobody comes before it who came after it, unless its opening let another's offer pass."""
HASTY = checked_terms("jobs", "2s", None, None)


@dataclass
class Asked:
    """What the model knows of one asking."""

    token: bytes
    opening: int
    life: int
    patient: bool
    granted: Granted | None = None


@dataclass
class Key:
    """What the model knows of one key."""

    holder: Asked | None = None
    ends: int = 0
    """When the lease runs out, in nanoseconds of the boot clock."""
    line: list[Asked] = field(default_factory=list)
    dozing: set[tuple[int, int]] = field(default_factory=set)
    """The openings, by their life, that may have let an offer pass: they are stepped over with all of their places."""
    asked: list[Asked] = field(default_factory=list)


class LockMachine(RuleBasedStateMachine):
    """Two openings of one journal, on a clock that stands until it is moved. Nobody looks after who waits but the rules."""

    new_url: FreshURL

    @initialize()
    def begin(self) -> None:
        self.url = self.new_url()
        self.clock = JournalClock()
        self.clock.drive(self.url)
        self.keys = {"a": Key(), "b": Key()}
        self.lives = [0, 0]
        self.cores = [self.opened(), self.opened()]
        self.fence = 0
        self.count = 0

    def opened(self) -> Core:
        return Core(self.url, clock=self.clock)

    def run(self, opening: int, command: Any) -> Any:
        return self.cores[opening].committer.submit(command).result(30)

    def lease_id(self, name: str) -> str:
        return lock_id(self.cores[0].engine.journal_key, "jobs", name)

    def lives_on(self, asked: Asked) -> bool:
        return asked.life == self.lives[asked.opening]

    def holder(self, key: Key) -> Asked | None:
        """Who has a key now."""
        held = key.holder is not None and self.lives_on(key.holder) and self.clock.boot() < key.ends
        return key.holder if held else None

    def grant(self, key: Key, asked: Asked, granted: Granted) -> None:
        """Nobody has it, nobody who is patient came before, and the fence is the largest of all."""
        assert self.holder(key) is None
        assert granted.fence > self.fence
        before = key.line[: key.line.index(asked)] if asked in key.line else key.line
        assert not any(each.patient and self.lives_on(each) and (each.opening, each.life) not in key.dozing for each in before)
        self.fence, asked.granted = granted.fence, granted
        key.holder, key.ends = asked, granted.at
        assert granted.at == self.clock.boot() + (PATIENT if asked.patient else HASTY).ttl * 1_000
        if asked in key.line:
            key.line.remove(asked)

    @rule(name=KEYS, comers=lists(tuples(OPENINGS, booleans()), min_size=1, max_size=5))
    def come(self, name: str, comers: list[tuple[int, bool]]) -> None:
        """Some who wait come one after the other."""
        for opening, patient in comers:
            self.ask(name, opening, waits=True, patient=patient)

    @rule(name=KEYS, opening=OPENINGS, waits=booleans(), patient=booleans())
    def ask(self, name: str, opening: int, waits: bool, patient: bool) -> None:
        key = self.keys[name]
        self.count += 1
        asked = Asked(b"%16d" % self.count, opening, self.lives[opening], patient)
        key.asked.append(asked)
        answer = self.run(opening, self.hold(name, asked, waits))
        if isinstance(answer, Granted):
            self.grant(key, asked, answer)
            return
        assert isinstance(answer, InLine if waits else Held)
        assert self.holder(key) is not None or any(self.lives_on(each) for each in key.line)
        if waits:
            key.line.append(asked)
            if not patient:
                key.dozing.add((opening, asked.life))

    def hold(self, name: str, asked: Asked, waits: bool) -> Hold:
        return Hold(PATIENT if asked.patient else HASTY, self.lease_id(name), name, asked.token, waits)

    @rule(name=KEYS, which=integers(0, 5))
    def ask_again(self, name: str, which: int) -> None:
        """The answer was lost: the lease is the same, and so is the place, until it is its turn."""
        key = self.keys[name]
        asking = [each for each in (*key.line, self.holder(key)) if each is not None and self.lives_on(each)]
        if not asking:
            return
        asked = asking[which % len(asking)]
        answer = self.run(asked.opening, self.hold(name, asked, waits=True))
        if asked is self.holder(key):
            assert answer == asked.granted
        elif isinstance(answer, Granted):
            self.grant(key, asked, answer)
        else:
            assert isinstance(answer, InLine)

    @rule(name=KEYS, opening=OPENINGS)
    def look(self, name: str, opening: int) -> None:
        """An opening was rung."""
        key, life = self.keys[name], self.lives[opening]
        if all(each.patient or (each.opening, each.life) != (opening, life) for each in key.line):
            key.dozing.discard((opening, life))
        advanced = self.run(opening, Advance(self.lease_id(name)))
        if advanced.granted is not None:
            (asked,) = [each for each in key.line if each.token == advanced.granted.token]
            assert opening == asked.opening
            self.grant(key, asked, advanced.granted)

    @rule(name=KEYS)
    def look_everywhere(self, name: str) -> None:
        """When both have looked, somebody who waits has the key."""
        key = self.keys[name]
        for opening in (0, 1, 0, 1):
            self.look(name, opening)
        assert self.holder(key) is not None or not any(self.lives_on(each) for each in key.line)

    @rule(name=KEYS, which=integers(0, 5))
    def leave(self, name: str, which: int) -> None:
        """A wait that is over, or cancelled: its place or its lease is given up."""
        key = self.keys[name]
        asking = [each for each in (*key.line, key.holder) if each is not None and self.lives_on(each)]
        if asking:
            asked = asking[which % len(asking)]
            self.run(asked.opening, Leave(self.lease_id(name), asked.token))
            self.gone(key, asked)

    def gone(self, key: Key, asked: Asked) -> None:
        if asked in key.line:
            key.line.remove(asked)
        elif asked is key.holder:
            key.holder = None

    @rule(name=KEYS, which=integers(0, 50))
    def release(self, name: str, which: int) -> None:
        """Only the token of the lease releases it; all the others touch nobody, those of the dead included."""
        key = self.keys[name]
        granted = [each for each in key.asked if each.granted is not None]
        if not granted:
            return
        asked = granted[-1 - which % len(granted)]
        assert asked.granted is not None
        reason = self.run(asked.opening, ReleaseKey(asked.granted.ticket))
        if asked is self.holder(key):
            assert reason is None
            key.holder = None
        else:
            assert reason is not None

    @rule(name=KEYS, which=integers(0, 50))
    def renew(self, name: str, which: int) -> None:
        """What ran out, was taken away or let go is never revived."""
        key = self.keys[name]
        granted = [each for each in key.asked if each.granted is not None]
        if not granted:
            return
        asked = granted[-1 - which % len(granted)]
        assert asked.granted is not None
        renewed = self.run(asked.opening, Renew([asked.granted.ticket]))
        if asked is self.holder(key):
            key.ends = self.clock.boot() + (PATIENT if asked.patient else HASTY).ttl * 1_000
            assert {asked.token: key.ends} == renewed.standing
            assert asked.granted is not None
            asked.granted = asked.granted._replace(at=key.ends)
        else:
            assert [asked.token] == list(renewed.lost)

    @rule(name=KEYS, opening=OPENINGS)
    def force(self, name: str, opening: int) -> None:
        key = self.keys[name]
        assert (self.holder(key) is not None) == self.run(opening, ForceRelease(self.lease_id(name), "stuck"))
        if self.holder(key) is not None:
            key.holder = None

    @rule(opening=OPENINGS, spared=integers(0, 3))
    def kill(self, opening: int, spared: int) -> None:
        """Nothing more is written, and the sign of life is gone. One in four, or nobody would get old enough to wait."""
        if spared:
            return
        self.cores[opening].committer.close()
        self.cores[opening].engine.close()
        self.lives[opening] += 1
        self.cores[opening] = self.opened()

    @rule(milliseconds=sampled_from([1, 999, 1_000, 2_000]))
    def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(f"{milliseconds}ms")

    @rule(back=booleans())
    def move_the_wall_clock(self, back: bool) -> None:
        if back:
            self.clock.set_back("1h")
        else:
            self.clock.set_forward("1h")

    @invariant()
    def who_holds_and_who_waits_is_what_the_model_says(self) -> None:
        core = self.cores[0]
        held = core.read(lambda store: holders(store, core.engine.clocks))
        expected = {name: self.holder(key) for name, key in self.keys.items()}
        assert {name: each.granted.fence for name, each in expected.items() if each is not None and each.granted is not None} == {
            holder.key: holder.fence for holder in held
        }
        waits = core.read(lambda store: waiters(store, core.is_live))
        for name, key in self.keys.items():
            live = sum(self.lives_on(each) for each in key.line)
            assert list(range(1, live + 1)) == [waiter.place for waiter in waits if waiter.key == name]

    def teardown(self) -> None:
        if not hasattr(self, "cores"):
            return
        verification = self.cores[0].read(verify)
        for core in self.cores:
            core.close()
        self.clock.close()
        assert verification.agrees, verification


@pytest.mark.contract("LCK-01", "LCK-02", "LCK-04", "LCK-05", "LCK-08", "LCK-10", "LCK-15")
def test_locks_do_as_the_model_says(fresh_url: FreshURL, engine: Engine) -> None:
    """Less often on PostgreSQL, where each example makes a schema and connects again and again."""

    class Machine(LockMachine):
        new_url = staticmethod(fresh_url)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=100 if engine == "sqlite" else 25,
            stateful_step_count=60,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
