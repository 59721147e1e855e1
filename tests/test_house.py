"""Rules of the house that no linter checks."""

import ast
import re
from pathlib import Path

import pytest

from tests.sources import MODULES, nodes, parsed

ROOT = Path(__file__).parents[1]
KINDS = ("src/**/*.py", "tests/**/*.py", "benchmarks/*.py", "docs/*.md", "configs/**/*.yaml", "*.md", "Makefile")
TEXTS = [path for pattern in KINDS for path in ROOT.glob(pattern)]


def test_public_names_have_docstrings_and_modules_and_functions_stay_small() -> None:
    bare, long = [], []
    for path in MODULES:
        tree = parsed(path)
        named = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_"]
        told = [node for node in named if ast.get_docstring(node) or says_it_elsewhere(node)]
        bare += [f"{path}: {name}" for name in {node.name for node in named} - {node.name for node in told}]
        bare += [] if ast.get_docstring(tree) else [str(path)]
        long += [str(path)] if path.read_text().count("\n") > 350 else []
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                start = node.body[0].end_lineno if ast.get_docstring(node) else node.lineno
                long += [f"{path}: {node.name}"] if node.end_lineno - start > 50 else []
    assert (bare, long) == ([], [])


def says_it_elsewhere(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """A builder is described by its schema, and a kernel, which Triton compiles, by the comment above it."""
    if isinstance(node, ast.ClassDef):
        return False
    builder = node.name.startswith("build_") and node.args.args[0].arg == "config"
    return builder or any("triton" in ast.unparse(decorator) for decorator in node.decorator_list)


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
