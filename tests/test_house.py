"""Rules of the house that no linter checks."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "src").rglob("*.py"))
TEXTS = [
    path
    for pattern in (
        "src/**/*.py",
        "tests/**/*.py",
        "benchmarks/*.py",
        "docs/*.md",
        "configs/**/*.yaml",
        "*.md",
        "Makefile",
    )
    for path in ROOT.glob(pattern)
]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_public_names_have_docstrings(path: Path) -> None:
    tree = ast.parse(path.read_text())
    named = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_"]
    assert ast.get_docstring(tree)
    assert not [node.name for node in named if not ast.get_docstring(node) and not says_it_elsewhere(node)]


def says_it_elsewhere(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """A builder is described by its schema, and a kernel, which Triton compiles, by the comment above it."""
    if isinstance(node, ast.ClassDef):
        return False
    builder = node.name.startswith("build_") and node.args.args[0].arg == "config"
    return builder or any("triton" in ast.unparse(decorator) for decorator in node.decorator_list)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_modules_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 350
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            start = node.body[0].end_lineno if ast.get_docstring(node) else node.lineno
            assert node.end_lineno - start <= 50, node.name


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.yaml")), ids=lambda path: path.name)
def test_configurations_are_short_and_name_no_code(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 25
    assert "_target_" not in text
    assert text.startswith("# ")


def test_nothing_names_a_machine_or_a_registry() -> None:
    # written in parts, so that this file does not find itself
    hosts = "|".join(("py" + "pi.org", "files.python" + "hosted.org", "/wo" + "rk/", "/tm" + "p/pytest"))
    found = [f"{path}: {match[0]}" for path in TEXTS for match in re.finditer(hosts, path.read_text(errors="replace"))]
    assert not found
