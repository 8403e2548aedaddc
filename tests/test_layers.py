"""What the layers may touch: the pure ones nothing but values, and nobody the files that belong to SQLite.

Which layer may import which is a matter of import-linter; see pyproject.toml.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The modules of infrastructure/ that open files: side files of a journal, SQL that is shipped, what the
# kernel tells, what a person names on the command line. None is handed the path of a journal, its -wal or
# its -shm: when a descriptor on one of these closes, the process loses the locks that SQLite holds on it.
OPENS_FILES = ("bell.py", "clock.py", "descriptor.py", "kept_aside.py", "long_key.py", "named_files.py", "statements.py")

IMPURE_MODULES = frozenset(
    "asyncio concurrent ctypes fcntl http io mmap multiprocessing os pathlib random secrets select selectors "
    "shutil signal socket sqlite3 ssl subprocess tempfile threading time urllib".split()
)
IMPURE_NAMES = frozenset(
    "datetime.date.today datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow "
    "uuid.getnode uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 uuid.uuid8 "
    "builtins.open builtins.input builtins.print".split()
)
OPENING_NAMES = frozenset(
    "builtins.open codecs.open io.FileIO io.open io.open_code os.open tokenize.open "
    "shutil.copy shutil.copy2 shutil.copyfile shutil.copytree shutil.move".split()
)
OPENING_METHODS = frozenset("read_bytes read_text write_bytes write_text".split())


class Names:
    """What the names of one module stand for, as dotted paths."""

    def __init__(self, tree: ast.Module) -> None:
        self.imports: dict[str, str] = {}
        self.imported: list[tuple[str, int]] = []
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    for each in names:
                        self.imported.append((each.name, node.lineno))
                        first = each.name.partition(".")[0]
                        self.imports[each.asname or first] = each.name if each.asname else first
                case ast.ImportFrom(module=str(module), names=names, level=0):
                    for each in names:
                        self.imported.append((f"{module}.{each.name}", node.lineno))
                        self.imports[each.asname or each.name] = f"{module}.{each.name}"
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if node in tree.body:
                    self.imports[name] = f".{name}"

    def dotted(self, node: ast.expr) -> str | None:
        """The full name of ``datetime.now`` or the like; None when the expression is no name."""
        match node:
            case ast.Name(id=name):
                return self.imports.get(name, f"builtins.{name}")
            case ast.Attribute(value=value, attr=attribute):
                base = self.dotted(value)
                return base and f"{base}.{attribute}"
        return None


def impurities(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of everything with which a module reaches out of its arguments."""
    tree = ast.parse(source)
    names = Names(tree)
    for name, line in names.imported:
        if name.partition(".")[0] in IMPURE_MODULES or name in IMPURE_NAMES:
            yield line, name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            reached = names.dotted(node)
            if reached in IMPURE_NAMES:
                yield node.lineno, reached


def opened_files(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of every call that opens a file other than through SQLite."""
    tree = ast.parse(source)
    names = Names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = names.dotted(node.func)
        if name in OPENING_NAMES:
            yield node.lineno, str(name).removeprefix("builtins.")
        elif isinstance(node.func, ast.Attribute) and (
            node.func.attr in OPENING_METHODS or (node.func.attr in ("open", "touch") and is_path(node.func.value, names))
        ):
            yield node.lineno, ast.unparse(node.func)


def is_path(node: ast.expr, names: Names) -> bool:
    """Whether an expression looks like a ``pathlib.Path``: made as one, joined by a slash, or called so."""
    match node:
        case ast.Call(func=func):
            return names.dotted(func) in ("pathlib.Path", "pathlib.PosixPath") or is_path(func, names)
        case ast.BinOp(op=ast.Div()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return any(part in name.lower() for part in ("path", "file", "parent", "with_name", "with_suffix"))
    return False


def modules(layer: str) -> list[Path]:
    """The modules of a layer."""
    return sorted((ROOT / layer).rglob("*.py"))


@pytest.mark.parametrize("layer", ["domain", "projections"])
def test_pure_layer_reaches_out_for_nothing(layer: str) -> None:
    """Time, ids, tokens and salts arrive as arguments, so a fold gives the same rows at any later time."""
    found = [
        f"{module.relative_to(ROOT)}:{line}: {name}"
        for module in modules(layer)
        for line, name in impurities(module.read_text("utf-8"))
    ]

    assert not found, "\n".join(["no input, output, clock or chance in this layer:", *found])


def test_journal_files_are_opened_by_sqlite_alone() -> None:
    """Only the modules that are named above open files by themselves."""
    found = [
        f"{module.relative_to(ROOT)}:{line}: {name}"
        for module in modules("infrastructure")
        if module.name not in OPENS_FILES
        for line, name in opened_files(module.read_text("utf-8"))
    ]

    assert not found, "\n".join(["files are opened only by the modules in OPENS_FILES:", *found])


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from os import urandom",
        "from pathlib import Path",
        "import asyncio as a",
        "def f():\n    import random",
        "from uuid import uuid4",
        "import uuid as u\nu.uuid4()",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime as d\nd.utcnow()",
        "from datetime import datetime\nfield(default_factory=datetime.now)",
        "from datetime import date\ndate.today()",
        "open('x')",
        "print('x')",
    ],
)
def test_impurity_is_seen(source: str) -> None:
    """Each way to reach out is found, under whatever name it was imported."""
    assert list(impurities(source))


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime, timedelta, UTC\ndatetime.fromtimestamp(0, UTC)",
        "from uuid import UUID, uuid5",
        "context.now\ncontext.now()",
        "from .time import Clock",
        "from counterfoil.domain.time import at",
        "def open(x): ...\nopen(1)",
        "class A:\n    def open(self): ...",
    ],
)
def test_pure_code_passes(source: str) -> None:
    """Values that are computed from arguments, and names that only sound alike, are no reason to complain."""
    assert not list(impurities(source))


@pytest.mark.parametrize(
    "source",
    [
        "open(path)",
        "with open(path, 'rb') as file: ...",
        "import os\nos.open(path, 0)",
        "from os import open as o\no(path, 0)",
        "import io\nio.open(path)",
        "import shutil\nshutil.copyfile(path, other)",
        "from pathlib import Path\nPath(name).open()",
        "from pathlib import Path\nPath(name).read_bytes()",
        "self._path.open('rb')",
        "(folder / name).open()",
        "path.with_name('x').open()",
        "journal.read_bytes()",
    ],
)
def test_opened_file_is_seen(source: str) -> None:
    """Each way to open a file is found."""
    assert list(opened_files(source))


@pytest.mark.parametrize(
    "source",
    [
        "import sqlite3\nsqlite3.connect('file:x?mode=ro', uri=True)",
        "import counterfoil\ncounterfoil.open(path)",
        "def open(url): ...\nopen(path)",
        "pool.open()",
        "Journal.open(path)",
        "path.exists()",
    ],
)
def test_other_opening_passes(source: str) -> None:
    """SQLite opens the journal, and other things than files are opened too."""
    assert not list(opened_files(source))
