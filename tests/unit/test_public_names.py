"""The public names of `barnabas`: documents use no others, and importing it loads no client."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import barnabas
from barnabas.client import errors
from barnabas.client.consumer import errors as consumer_errors

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^ *```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
# Public modules that are imported by their own names.
MODULES = {
    "barnabas.spark.metrics",
    "barnabas.spark.pipelines.expectations",
    "barnabas.spark.query_progress",
    "barnabas.spark.session",
    "barnabas.testing",
}


def imports(page: str) -> set[tuple[str, str]]:
    """Return (module, name) of each import from this package in a page's Python blocks."""
    return {
        (node.module, alias.name)
        for block in BLOCK.findall((ROOT / page).read_text())
        for node in ast.walk(ast.parse(textwrap.dedent(block)))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "barnabas"
        for alias in node.names
    }


@pytest.mark.parametrize("page", PAGES)
def test_documents_import_only_public_names(page: str) -> None:
    private = {
        (module, name)
        for module, name in imports(page)
        if module not in MODULES and not (module == "barnabas" and name in barnabas.__all__)
    }
    assert not private


def test_some_documents_import_public_names() -> None:
    assert len(set().union(*map(imports, PAGES))) > 10


@pytest.mark.parametrize("name", barnabas.__all__)
def test_a_public_name_exists_and_dir_shows_it(name: str) -> None:
    assert getattr(barnabas, name) is not None
    assert name in dir(barnabas)


@pytest.mark.parametrize("name", barnabas.__all__)
def test_help_shows_a_public_name(name: str) -> None:
    public = getattr(barnabas, name)
    if inspect.isclass(public):
        assert name in pydoc.render_doc(public)


def test_type_checkers_see_the_same_names_as_the_running_program() -> None:
    tree = ast.parse((ROOT / "src/barnabas/__init__.py").read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen | {"__version__"} == set(barnabas.__all__)


def test_every_error_of_the_client_is_public() -> None:
    defined = {
        name
        for module in (errors, consumer_errors)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, barnabas.ClientError)
    }
    assert defined <= set(barnabas.__all__)


def test_importing_the_package_loads_no_client() -> None:
    program = "import sys, barnabas; print(*(name for name in sys.modules if 'barnabas' in name))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(loaded) == {"barnabas", "barnabas.version"}
