"""Sample traffic from a fixed seed, an agent that echoes, and a channel that prints: enough to see a journal at work."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from counterfoil.domain.exchange import Reply, Turn

SEED: Final = 20_040_101
PEOPLE: Final = 20
MESSAGES: Final = 200
_START: Final = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
_WORDS: Final = (
    "where is my order please the parcel has not come can you look again thanks it worked after a restart "
    "how do I change the address invoice number wrong hello is anybody there yes no it says error refund"
).split()


async def echo(turn: Turn) -> str:
    """Answer with what was said."""
    return f"you said: {turn.text}"


def print_reply(reply: Reply) -> None:
    """
    Write one line to standard output, the event id and the text as JSON, and flush it: what lies in a buffer is not delivered.
    """
    sys.stdout.write(f"{reply.in_reply_to}\t{json.dumps(reply.text)}\n")
    sys.stdout.flush()


def traffic(messages: int = MESSAGES, people: int = PEOPLE, seed: int = SEED) -> Iterator[dict[str, str]]:
    """Make inbound events as `counterfoil run` reads them; the same seed gives the same events."""
    chance = Random(seed)
    at = _START
    for number in range(1, messages + 1):
        at += timedelta(seconds=chance.expovariate(1 / 20))
        person = min(int(chance.paretovariate(1.1)), people)
        yield {
            "connection": "demo",
            "conversation": f"chat-{(person - 1) % 5 + 1}",
            "actor": f"person-{person:02}",
            "event_id": f"event-{number:04}",
            "received_at": at.isoformat(timespec="seconds"),
            "text": " ".join(chance.choices(_WORDS, k=chance.randint(1, 12))),
        }
