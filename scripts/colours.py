"""
Make the synchronous journal from the asynchronous one: `python scripts/colours.py` writes it, `--check` tells whether it is up to
date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LAYER = Path(__file__).parents[1] / "infrastructure"
SOURCE, TARGET = LAYER / "journal_async.py", LAYER / "journal.py"

DOCSTRING = (
    '"""The journal for plain synchronous programs. Made from `journal_async.py` by `scripts/colours.py`; change that one."""'
)
WORDS = {
    "AsyncJournal": "Journal",
    "AsyncDesk": "Desk",
    "AsyncCalls": "Calls",
    "AsyncOpener": "Opener",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "open_async": "open",
}


def synchronous(source: str) -> str:
    """Return the synchronous twin of a module."""
    text = re.sub(r'\A""".*?"""', lambda _: DOCSTRING, source, flags=re.DOTALL)
    text = re.sub(r"\basync (def|with|for)\b", r"\1", text)
    text = re.sub(r"\bawait ", "", text)
    for word, twin in WORDS.items():
        text = re.sub(rf"\b{word}\b", twin, text)
    text = text.replace("number of tasks", "number of threads")
    return text


def main() -> int:
    made = synchronous(SOURCE.read_text("utf-8"))
    if "--check" in sys.argv[1:]:
        if TARGET.read_text("utf-8") == made:
            return 0
        sys.stderr.write("infrastructure/journal.py is not what scripts/colours.py makes; run it\n")
        return 1
    TARGET.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
