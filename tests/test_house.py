"""Rules of the house that no linter checks: sizes, words, what is private, the doors of the package and its rooms."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import segmeter
from tests.sources import MODULES, SOURCE, nodes, parsed

TESTS = Path(__file__).parent
ROOT = TESTS.parent
KINDS = ("src/**/*.py", "tests/**/*.py", "benchmarks/*.py", "docs/*.md", "configs/**/*.yaml", "*.md", "Makefile")
TEXTS = [path for pattern in KINDS for path in ROOT.glob(pattern)]
ROOMS = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
DOORS = sorted(ROOMS - {"cli", "api"})  # whose door is the package itself
ROOMS_OF_TORCH = {"bridge", "deploy", "inference", "losses", "models", "training"}  # of no use without it
MOST_FILES = 13
# Tests of everything: against other tools, by faults, by damaged files, by laws, in a browser
OF_NO_ROOM = {"differential", "faults", "fuzzed", "laws", "browser"}
OF_TORCH = {
    "load", "Model", "focal_loss", "FocalLoss", "to_torch", "to_numpy", "labels_to_numpy", "probs_to_numpy",
    "HostCopier", "PendingArray", "Transport",
}  # fmt: skip
SHOWN = {
    "evaluate", "bootstrap", "boundary_iou", "calibration", "centreline_dice", "compare", "confusion_matrix",
    "match_instances", "overlap_scores", "surface_metrics", "surface_metrics_by_class",
}  # fmt: skip


def test_names_have_docstrings_modules_and_functions_stay_small_and_folders_have_few_files() -> None:
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
    for folder in {path.parent for path in MODULES}:
        assert (folder / "__init__.py").exists(), folder
        files = [path.name for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py")]
        long += [f"{folder}: {sorted(files)}"] if len(files) > MOST_FILES else []
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


def imported_names(path: Path) -> Iterator[str]:
    """Every module of ours that a module imports anywhere in its code."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_a_module_with_an_underscore_is_imported_inside_its_own_folder_only():
    """Mutation seen to fail: a private module imported from another room."""
    private = {path.stem for path in MODULES if re.match("_[^_]", path.stem)}
    assert private
    for path in MODULES:
        for name in imported_names(path):
            folder, _, stem = name.removeprefix("segmeter.").rpartition(".")
            if name.startswith("segmeter.") and stem in private and (SOURCE / folder.replace(".", "/")).is_dir():
                assert path.is_relative_to(SOURCE / folder.replace(".", "/")), f"{path} imports {name}"


def test_the_order_of_the_rooms_is_written_down_as_it_is_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "imports follow the data's path")
    written = next(line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if " > distributed > " in line)
    assert written.strip() == " > ".join(layers[: layers.index("remote") + 1])
    knowing = next(contract["source_modules"] for contract in contracts if "Hydra" in contract["name"])
    rooms = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {f"segmeter.{room}" for room in rooms if room[0] != "_"} - set(knowing) == {"segmeter.cli"}


def test_each_public_module_is_tested_in_the_folder_at_its_place_and_no_other_folder_has_tests():
    """A small module may share the test file of a neighbour, which then names it."""
    for module in (path.relative_to(SOURCE) for path in MODULES if not path.name.startswith("_")):
        tests = list((TESTS / module.parent).glob("test_*.py"))
        name = "segmeter." + ".".join(module.with_suffix("").parts)
        known = any(path.stem == f"test_{module.stem}" or name in imported_names(path) for path in tests)
        assert known, module
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    assert {str(each) for each in folders if not (SOURCE / each).is_dir() and each.name not in OF_NO_ROOM} == set()


@pytest.mark.parametrize("room", DOORS)
def test_every_room_has_a_door_that_gives_what_it_names_whatever_was_imported_before(room: str):
    """A lazy attribute would lose against a submodule of its name that was imported earlier."""
    door = import_module(f"segmeter.{room}")
    submodules = {path.stem for path in (SOURCE / room).iterdir()}
    is_lazy = (SOURCE / room / "__init__.pyi").exists()
    assert door.__all__
    for name in door.__all__:
        assert getattr(door, name) is not None
        assert not (is_lazy and name in submodules), f"{name} is a submodule as well"


def test_measuring_imports_neither_torch_nor_numba() -> None:
    """Neither by the doors of the rooms that score masks, nor, for torch, by the public names."""
    names = [name for name in segmeter.__all__ if name not in OF_TORCH]
    code = f"import sys, importlib\nfor room in {sorted(set(DOORS) - ROOMS_OF_TORCH)}:"
    code += " importlib.import_module('segmeter.' + room)\nprint('torch' in sys.modules, 'numba' in sys.modules)\n"
    code += f"import segmeter; [getattr(segmeter, name) for name in {names}]; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"] * 3


def our_classes(hint: object) -> set[type]:
    """Classes of this package anywhere within a type."""
    own = {hint} if isinstance(hint, type) and hint.__module__.startswith("segmeter") else set()
    return own.union(*(our_classes(part) for part in typing.get_args(hint)))


@pytest.mark.parametrize("name", [name for name in segmeter.__all__ if name[0] != "_"])
def test_every_public_name_is_there_and_documented_and_so_is_every_class_in_its_signature(name: str) -> None:
    found = getattr(segmeter, name)
    assert found.__doc__
    assert name in dir(segmeter)
    if name in SHOWN:
        assert "Examples\n" in found.__doc__
        assert "Raises\n" in found.__doc__
    shown = [found]
    if isinstance(found, type):
        called = name not in ("PendingArray", "Model")  # a copier and `load` make them
        methods = {n: f for n, f in vars(found).items() if inspect.isfunction(f)}
        shown += [f for n, f in methods.items() if n[0] != "_" or (n == "__init__" and called)]
    classes = {kind for one in shown for hint in typing.get_type_hints(one).values() for kind in our_classes(hint)}
    assert {kind.__name__ for kind in classes} <= set(segmeter.__all__)


def test_the_package_has_the_names_of_its_list_and_old_ones_which_say_so_and_no_others() -> None:
    """The package gives what the stub imports; type checkers read the list."""
    assigned = [node for node in ast.parse((SOURCE / "__init__.pyi").read_text()).body if isinstance(node, ast.Assign)]
    (listed,) = [ast.literal_eval(node.value) for node in assigned]
    assert set(listed) == set(segmeter.__all__)
    with pytest.warns(DeprecationWarning, match="segmeter.Exporter is called HostCopier now"):
        assert segmeter.Exporter is segmeter.HostCopier
    with pytest.raises(AttributeError, match="module 'segmeter' has no attribute 'confusion'"):
        segmeter.confusion  # noqa: B018
