"""
Make the synchronous journal and its locks from the asynchronous ones: `python scripts/colours.py` writes them, `--check` tells
whether they are up to date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LAYER = Path(__file__).parents[1] / "infrastructure"
MODULES = {"journal_async.py": "journal.py", "locks_async.py": "locks.py"}

DOCSTRING = '"""{} for plain synchronous programs. Made from `{}` by `scripts/colours.py`; change that one."""'
WORDS = {
    "AsyncJournal": "Journal",
    "AsyncDesk": "Desk",
    "AsyncCalls": "Calls",
    "AsyncTransactions": "Transactions",
    "AsyncLock": "Lock",
    "AsyncLease": "Lease",
    "AsyncHolding": "Holding",
    "locks_async": "locks",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "open_async": "open",
}


def synchronous(source: str, name: str) -> str:
    """Return the synchronous twin of a module."""
    subject = re.match(r'"""(.*?) for asyncio', source)
    assert subject is not None, f"{name} must begin with what it is for asyncio"
    text = re.sub(r'\A""".*?"""', lambda _: DOCSTRING.format(subject[1], name), source, flags=re.DOTALL)
    text = re.sub(r"\basync (def|with|for)\b", r"\1", text)
    text = re.sub(r"\bawait ", "", text)
    for word, twin in WORDS.items():
        text = re.sub(rf"\b{word}\b", twin, text)
    text = text.replace("number of tasks", "number of threads")
    return text


def main() -> int:
    old = []
    for source, target in MODULES.items():
        made = synchronous((LAYER / source).read_text("utf-8"), source)
        if "--check" not in sys.argv[1:]:
            (LAYER / target).write_text(made, "utf-8")
        elif (LAYER / target).read_text("utf-8") != made:
            old.append(target)
    if old:
        sys.stderr.write(f"{', '.join(old)} in infrastructure/ is not what scripts/colours.py makes; run it\n")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
