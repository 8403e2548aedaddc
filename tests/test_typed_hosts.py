"""A host that is typed strictly, and knows nothing of our plugins, can write what the README writes."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import counterfoil

ROOT = Path(__file__).parents[1]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), flags=re.DOTALL)


def test_hosts_and_the_readme_type_check_without_the_plugin(tmp_path: Path) -> None:
    programs = [str(program) for program in sorted((ROOT / "typing_tests").glob("*.py"))]
    for number, example in enumerate(EXAMPLES, 1):
        program = tmp_path / f"readme_{number}.py"
        program.write_text(example, "utf-8")
        programs.append(str(program))
    options = ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", "--follow-imports=silent"]

    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *programs],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        text=True,
        capture_output=True,
    )

    assert (0, len(EXAMPLES) + 4) == (done.returncode, len(programs)), done.stdout + done.stderr


def test_type_checkers_are_told_of_the_same_names() -> None:
    """The imports for type checkers are those that are made at the first use."""
    told: dict[str, str] = {}
    tree = ast.parse(Path(counterfoil.__file__).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("counterfoil."):
            told |= {name.asname or name.name: node.module for name in node.names}

    assert counterfoil._MODULES == told
