"""Hold docs/contract.md and the tests together: no promise without a test, no test of what is not written."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENT = "docs/contract.md"

CLAUSE = re.compile(r"- \*\*(?P<id>[A-Z]{3}-\d\d)\*\* `(?P<marker>[^`]*)`: \S")
LOOKS_LIKE_CLAUSE = re.compile(r"\s*[-*]\s+[*_`]*[A-Z]{2,4}-\d+")
MARKER = re.compile(r"planned|promised|promised except \([^()]*\w[^()]*\)")
NO_PROOF = ("skip", "xfail")


@dataclass(frozen=True)
class Clause:
    """One clause of the document."""

    id: str
    marker: str
    line: int

    @property
    def promised(self) -> bool:
        return self.marker.startswith("promised")


@dataclass(frozen=True)
class Use:
    """One id inside one ``contract`` marker; the marker stands at ``place``."""

    id: str
    place: str


def read_clauses(text: str) -> tuple[list[Clause], list[str]]:
    """Read the clauses of the document, with a complaint for each line that cannot be understood."""
    clauses: list[Clause] = []
    complaints: list[str] = []
    first_line: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{DOCUMENT}:{number}"
        found = CLAUSE.match(line)
        if found is None:
            if LOOKS_LIKE_CLAUSE.match(line):
                complaints.append(f"{place}: write '- **ADM-03** `planned`: ...', not {line[:40]!r}")
            continue
        clause = Clause(found["id"], found["marker"], number)
        if not MARKER.fullmatch(clause.marker):
            known = "'planned', 'promised' or 'promised except (words)'"
            complaints.append(f"{place}: {clause.id} is marked {clause.marker!r}, not {known}")
        if clause.id in first_line:
            complaints.append(f"{place}: {clause.id} stands already in line {first_line[clause.id]}")
        first_line.setdefault(clause.id, number)
        clauses.append(clause)
    return clauses, complaints


def mark_name(node: ast.expr) -> str | None:
    """The name of a pytest mark, called or not: ``contract`` for ``pytest.mark.contract("ADM-03")``."""
    match node:
        case ast.Call(func=func):
            return mark_name(func)
        case ast.Attribute(value=ast.Attribute(attr="mark") | ast.Name(id="mark"), attr=name):
            return name
    return None


def marks_in(expressions: list[ast.expr]) -> Iterator[ast.expr]:
    """Every mark in these expressions, also one inside ``pytest.param(..., marks=...)``."""
    for expression in expressions:
        yield from (node for node in ast.walk(expression) if isinstance(node, ast.expr) and mark_name(node))


def mark_expressions(body: list[ast.stmt]) -> list[ast.expr]:
    """What a module or class assigns to ``pytestmark``."""
    return [
        statement.value
        for statement in body
        if isinstance(statement, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in statement.targets)
    ]


@dataclass(frozen=True)
class MarkedTest:
    """One test, or a class that inherits its tests, with the expressions that may hold its marks."""

    name: str
    line: int
    marks: list[ast.expr]


def read_tests(body: list[ast.stmt], inherited: list[ast.expr]) -> Iterator[MarkedTest]:
    """Each test of a module or class, by the names that pytest collects."""
    inherited = inherited + mark_expressions(body)
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test"):
                yield MarkedTest(name, node.lineno, inherited + node.decorator_list)
            case ast.ClassDef(name=name) if name.startswith("Test"):
                marks = inherited + node.decorator_list
                own = list(read_tests(node.body, marks))
                yield from own or [MarkedTest(name, node.lineno, marks + mark_expressions(node.body))]
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("Test"):
                yield MarkedTest(name, node.lineno, inherited)


def read_uses(source: str, file: str) -> tuple[list[Use], list[str]]:
    """Read the ids that the tests of one file name, with a complaint for each marker that proves nothing."""
    tree = ast.parse(source, file)
    uses: dict[Use, None] = {}
    complaints: list[str] = []
    effective: set[ast.expr] = set()
    for test in read_tests(tree.body, []):
        marks = list(marks_in(test.marks))
        contracts = [mark for mark in marks if isinstance(mark, ast.Call) and mark_name(mark) == "contract"]
        effective.update(contracts)
        off = next((name for mark in marks if (name := mark_name(mark)) in NO_PROOF), None)
        if contracts and off:
            complaints.append(f"{file}:{test.line}: {test.name} is marked {off}, so it proves no clause")
            continue
        for call in contracts:
            place = f"{file}:{call.lineno}"
            for argument in call.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    uses[Use(argument.value, place)] = None
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and mark_name(node) == "contract"):
            continue
        place = f"{file}:{node.lineno}"
        literal = all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in node.args)
        if not node.args or node.keywords or not literal:
            complaints.append(f'{place}: write the ids out, as in contract("ADM-03", "ADM-04")')
        if node not in effective:
            complaints.append(f"{place}: this contract marker belongs to no test")
    return list(uses), complaints


def compare(clauses: list[Clause], uses: list[Use]) -> list[str]:
    """Name each promised clause that no test proves, and each test that names what is not in the document."""
    known = {clause.id for clause in clauses}
    named = {use.id for use in uses}
    unproved = [
        f"{DOCUMENT}:{clause.line}: {clause.id} is promised and no test proves it; mark one with "
        f'@pytest.mark.contract("{clause.id}"), or mark the clause planned'
        for clause in clauses
        if clause.promised and clause.id not in named
    ]
    unknown = [f"{use.place}: {use.id} is not in {DOCUMENT}" for use in uses if use.id not in known]
    return unproved + unknown


def is_collected(path: Path) -> bool:
    """Whether pytest looks for tests in this file."""
    return path.name.startswith("test_") or path.name.endswith("_test.py")


def test_document_and_tests_agree() -> None:
    """The table itself: every complaint names its clause and its file."""
    clauses, complaints = read_clauses((ROOT / DOCUMENT).read_text("utf-8"))
    uses: list[Use] = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if is_collected(path):
            found, wrong = read_uses(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
            uses += found
            complaints += wrong

    assert clauses, f"{DOCUMENT} holds no clause"
    assert not complaints + compare(clauses, uses), "\n".join(complaints + compare(clauses, uses))


@pytest.mark.parametrize("marker", ["planned", "promised", "promised except (PostgreSQL; archives)"])
def test_known_markers_are_read(marker: str) -> None:
    """Each of the three markers is understood."""
    clauses, complaints = read_clauses(f"# Words\n\n- **ADM-03** `{marker}`: x\n  y\n- **no clause**\n")

    assert ([Clause("ADM-03", marker, 3)], []) == (clauses, complaints)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("- **ADM-03** `kept`: x", "ADM-03 is marked 'kept'"),
        ("- **ADM-03** `promised except`: x", "ADM-03 is marked 'promised except'"),
        ("- **ADM-03** `promised except ()`: x", "ADM-03 is marked 'promised except ()'"),
        ("- **ADM-03**: x", "write '- **ADM-03**"),
        ("- ADM-03 `planned`: x", "write '- **ADM-03**"),
        ("- **ADM-3** `planned`: x", "write '- **ADM-03**"),
        ("- **ADM-03** `planned`:", "write '- **ADM-03**"),
        ("- **ADM-01** `planned`: again", "ADM-01 stands already in line 1"),
    ],
)
def test_unclear_clause_is_reported(line: str, complaint: str) -> None:
    """A line that means to be a clause is never passed over."""
    _, (found,) = read_clauses(f"- **ADM-01** `planned`: x\n{line}\n")

    assert found.startswith(f"{DOCUMENT}:2: {complaint}")


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.contract('A', 'B')\ndef test_x(): ...",
        "@mark.contract('A')\n@mark.contract('B')\nasync def test_x(): ...",
        "pytestmark = pytest.mark.contract('A', 'B')\ndef test_x(): ...",
        "pytestmark = [pytest.mark.slow, pytest.mark.contract('A')]\n@mark.contract('B')\ndef test_x(): ...",
        "@mark.contract('A')\nclass TestX:\n    @mark.contract('B')\n    def test_x(self): ...",
        "class TestX:\n    pytestmark = mark.contract('A', 'B')\n    def test_x(self): ...",
        "@mark.contract('A', 'B')\nclass TestX(RecorderTestCase): ...",
        "class TestX(RecorderTestCase):\n    pytestmark = mark.contract('A', 'B')",
        "pytestmark = mark.contract('A', 'B')\nTestX = Machine.TestCase",
        "@mark.parametrize('x', [param(1, marks=mark.contract('A', 'B'))])\ndef test_x(x): ...",
    ],
)
def test_markers_are_found(source: str) -> None:
    """Wherever pytest takes a marker from, the table sees it."""
    uses, complaints = read_uses(source, "tests/test_x.py")

    assert (["A", "B"], []) == (sorted(use.id for use in uses), complaints)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("@mark.contract('A')\ndef helper(): ...", "1: this contract marker belongs to no test"),
        ("unused = mark.contract('A')\ndef test_x(): ...", "1: this contract marker belongs to no test"),
        ("pytestmark = mark.contract('A')", "1: this contract marker belongs to no test"),
        ("@mark.contract()\ndef test_x(): ...", "1: write the ids out"),
        ("@mark.contract(CLAUSE)\ndef test_x(): ...", "1: write the ids out"),
        ("@mark.contract(id='A')\ndef test_x(): ...", "1: write the ids out"),
        ("@mark.contract('A')\n@mark.skip\ndef test_x(): ...", "3: test_x is marked skip"),
        ("@mark.contract('A')\n@mark.xfail(reason='x')\ndef test_x(): ...", "3: test_x is marked xfail"),
    ],
)
def test_marker_that_proves_nothing_is_reported(source: str, complaint: str) -> None:
    """A marker without a running test behind it, or without readable ids, is a mistake."""
    uses, (found,) = read_uses(source, "tests/test_x.py")

    assert [] == uses
    assert found.startswith(f"tests/test_x.py:{complaint}")


def test_promise_without_proof_is_reported() -> None:
    """Promised clauses need a test, with exceptions or without; planned ones may have one."""
    clauses = [
        Clause("ADM-01", "promised", 1),
        Clause("ADM-02", "promised except (archives)", 2),
        Clause("ADM-03", "planned", 3),
        Clause("ADM-04", "promised", 4),
        Clause("ADM-05", "planned", 5),
    ]
    first, second, third = compare(
        clauses, [Use("ADM-04", "tests/a.py:1"), Use("ADM-05", "tests/a.py:2"), Use("ADM-99", "tests/a.py:3")]
    )

    assert first.startswith(f"{DOCUMENT}:1: ADM-01 is promised and no test proves it")
    assert second.startswith(f"{DOCUMENT}:2: ADM-02 is promised and no test proves it")
    assert third == f"tests/a.py:3: ADM-99 is not in {DOCUMENT}"
