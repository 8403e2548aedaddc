"""The import package is assembled from the layer folders; these tests keep links, list and wheel in step."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

import counterfoil
from counterfoil.infrastructure.unit import RELEASE

ROOT = Path(__file__).parents[1]
LAYERS = ("domain", "projections", "infrastructure")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT, SETUPTOOLS = PYPROJECT["project"], PYPROJECT["tool"]["setuptools"]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a program to its end and give what it printed; a failure shows all that it said."""
    done = subprocess.run(command, cwd=cwd, env=os.environ | environment, text=True, capture_output=True)

    assert done.returncode == 0, done.stdout + done.stderr

    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: setuptools would add whatever an earlier build left in the tree."""
    source = tmp_path_factory.mktemp("source") / "counterfoil"
    leave_out = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "*.sqlite*")
    shutil.copytree(ROOT, source, symlinks=True, ignore=leave_out)
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=source)
    (made,) = out.glob("*.whl")
    return made


def test_every_package_is_listed() -> None:
    """A sub-package that pyproject.toml does not list would be missing from the wheel, and only there."""
    found = {"counterfoil"}
    for layer in LAYERS:
        for init in (ROOT / layer).rglob("__init__.py"):
            found.add(".".join(("counterfoil", *init.parent.relative_to(ROOT).parts)))

    assert found == set(SETUPTOOLS["packages"])


def test_every_module_is_in_a_package() -> None:
    """A folder with modules but without ``__init__.py`` would be left out without a word."""
    stray = {
        str(module.relative_to(ROOT))
        for layer in LAYERS
        for module in (ROOT / layer).rglob("*.py")
        if not (module.parent / "__init__.py").exists()
    }

    assert set() == stray


@pytest.mark.skipif(sys.platform == "win32", reason="checkouts may lack symbolic links")
@pytest.mark.parametrize("layer", LAYERS)
def test_layer_is_linked(layer: str) -> None:
    """The link inside counterfoil/ leads to the layer of the same name, by a path that survives a move."""
    link = ROOT / "counterfoil" / layer

    assert os.readlink(link) == f"../{layer}"
    assert link.resolve() == ROOT / layer


def test_wheel_holds_every_source_file(wheel: Path) -> None:
    """Modules, SQL and the typing marker are shipped, each once and under counterfoil."""
    expected = {"counterfoil/py.typed"}
    for folder in ("counterfoil", *LAYERS):
        prefix = "" if folder == "counterfoil" else "counterfoil/"
        for suffix in ("*.py", "*.sql"):
            expected |= {prefix + file.relative_to(ROOT).as_posix() for file in (ROOT / folder).rglob(suffix)}
    names = zipfile.ZipFile(wheel).namelist()
    shipped = [name for name in names if ".dist-info/" not in name]

    assert expected == set(shipped)
    assert len(set(shipped)) == len(shipped)


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder away from the tree with the wheel alone; its dependencies come from the environment."""
    target = tmp_path_factory.mktemp("installed") / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-deps", "--no-index", "--target", target, wheel, cwd=target.parent)
    return target


def test_installed_wheel_is_imported(site: Path, tmp_path: Path) -> None:
    """The wheel alone serves ``import counterfoil`` and its layers."""
    program = "".join(
        f"import {name}; print({name}.__file__)\n" for name in ("counterfoil", *(f"counterfoil.{layer}" for layer in LAYERS))
    )
    printed = run(sys.executable, "-W", "error", "-c", program, cwd=tmp_path, PYTHONPATH=str(site))
    package = site / "counterfoil"

    assert [package, *(package / layer for layer in LAYERS)] == [Path(file).parent for file in printed.splitlines()]


def test_installed_wheel_opens_a_journal(site: Path, tmp_path: Path) -> None:
    """The SQL is found where the wheel was installed."""
    program = "import counterfoil\nwith counterfoil.open('journal.sqlite'):\n    pass\n"
    run(sys.executable, "-W", "error", "-c", program, cwd=tmp_path, PYTHONPATH=str(site))


def test_public_names_are_sorted_and_served() -> None:
    """Each public name stands in ``__all__`` and leads to an object in the module that is given for it."""
    assert list(counterfoil.__all__) == sorted(counterfoil._MODULES)
    for name in counterfoil.__all__:
        assert getattr(counterfoil, name) is getattr(import_module(counterfoil._MODULES[name]), name)
    with pytest.raises(AttributeError, match="no_such_name"):
        counterfoil.no_such_name  # noqa: B018


def test_import_loads_nothing_else(tmp_path: Path) -> None:
    """The front door is cheap to import: what it serves is loaded on first use, whatever an environment has loaded before."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); old = set(sys.modules); import counterfoil; "
        "print(*(set(sys.modules) - old))"
    )

    for options in ((), ("-I", "-S")):  # with the site's .pth files, which may load importlib, and without
        assert run(sys.executable, *options, "-c", program, cwd=tmp_path).split() == ["counterfoil"]


def test_release_is_the_version_of_the_package() -> None:
    """What openings record of themselves is what was installed."""
    assert RELEASE == PROJECT["version"]


def test_pythons_are_the_same_everywhere() -> None:
    """The classifiers begin with the oldest Python that is required, and `make` looks for each of them and no other."""
    classified = [
        line.rpartition(" ")[2] for line in PROJECT["classifiers"] if line.startswith("Programming Language :: Python :: 3.")
    ]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    searched = re.search(r"foreach each,python3 ([^,]+),", makefile)
    assert searched is not None

    assert f">={classified[0]}" == PROJECT["requires-python"]
    assert [f"python{version}" for version in reversed(classified)] == searched[1].split()
    assert f"({classified[0].replace('.', ', ')})" in makefile
    assert f"py{classified[0].replace('.', '')}" == PYPROJECT["tool"]["ruff"]["target-version"]
    assert classified[0] == PYPROJECT["tool"]["mypy"]["python_version"]
