"""`counterfoil explain`: why was this message not answered, or answered twice?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .desk import opened
from .options import Identifier, journal_argument, json_option
from .printing import print_json, shown

if TYPE_CHECKING:
    from counterfoil.projections.story import Story


@click.command()
@journal_argument()
@click.argument("id", type=Identifier())
@click.option("--with-text", is_flag=True, help="Show texts that are kept; this is recorded in the journal.")
@json_option("one JSON object")
def explain(journal: str, id: str, with_text: bool, as_json: bool) -> int:
    """
    Tell the story of one message: why it was not answered, or answered twice.

    ID is an operation id (op-…) or the platform's id of the message. Each step is told with who took it and how long it took,
    and in the end what is open and what can be done about it. Nothing known of the ID: exit status 5.
    """
    with opened(journal, readonly=not with_text) as (_, desk):
        stories = desk.explain(id, with_text=with_text)
    if as_json:
        print_json({"rows": [story.to_json() for story in stories], "next": None})
    else:
        click.echo("\n\n".join(text_of(story) for story in stories), nl=bool(stories))
    if not stories:
        click.echo("counterfoil explain: the journal knows nothing of this id; name an operation id or an event id", err=True)
        return 5
    return 0


def text_of(story: Story) -> str:
    """Return a story as people read it."""
    thread = "" if story.thread is None else f", thread {shown(story.thread)}"
    again = f"; occurrence {story.occurrence}" if story.occurrence else ""
    lines = [
        f"Message {shown(story.event_id)} of {shown(story.actor)} in {shown(story.conversation)}{thread} on "
        f"{shown(story.connection)}{again}",
        f"{story.operation_id}, version {story.version}",
        "",
        story.verdict,
        "",
    ]
    for step in story.steps:
        lines.append(f"{step.position:>8}  {shown(step.at)}  {step.since_in_words:>9}  {step.sentence}")
        if step.text is not None:
            lines.append(f"{'':>10}| {shown(step.text)}")
    if story.repeats:
        lines += ["", f"It was delivered {story.repeats + 1:,} times in all, and admitted once."]
    if story.open:
        lines += ["", "What is open:", *(f"  {sentence}" for sentence in story.open)]
    return "\n".join(lines)
