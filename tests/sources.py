"""The modules of the source, parsed once for all tests that look into them."""

import ast
from functools import cache
from pathlib import Path

import segmeter

SOURCE = Path(segmeter.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module."""
    return tuple(ast.walk(parsed(path)))
