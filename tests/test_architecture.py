"""The rooms of the source: their size, what is private to them, and the door of each."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import segmeter
from tests.sources import MODULES, SOURCE, nodes, parsed

DOORS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py") if "__all__" in path.read_text())
OF_TORCH = {"bridge", "deploy", "inference", "losses", "models", "training"}  # rooms that are of no use without torch
MOST_FILES = 13
TESTS = Path(__file__).parent
# Tests of everything: against other tools, by faults, by damaged files, by laws, in a browser
OF_NO_ROOM = {"differential", "faults", "fuzzed", "laws", "browser"}


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
    private = {path.stem: path.parent for path in MODULES if path.stem.startswith("_") and path.stem[1] != "_"}
    assert private
    for path in MODULES:
        for name in imported_names(path):
            folder, _, stem = name.removeprefix("segmeter.").rpartition(".")
            if name.startswith("segmeter.") and stem in private and (SOURCE / folder.replace(".", "/")).is_dir():
                assert path.is_relative_to(SOURCE / folder.replace(".", "/")), f"{path} imports {name}"


def test_a_folder_holds_few_files_and_says_what_it_does():
    for folder in {path.parent for path in MODULES}:
        files = [path.name for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py")]
        assert len(files) <= MOST_FILES, (folder, sorted(files))
        assert ast.get_docstring(parsed(folder / "__init__.py")), folder


def test_the_order_of_the_rooms_is_written_down_as_it_is_checked():
    root = TESTS.parent
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "imports follow the data's path")
    written = next(line for line in (root / "CONTRIBUTING.md").read_text().splitlines() if " > distributed > " in line)
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


def test_every_room_that_is_used_from_outside_has_a_door():
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set(DOORS) == rooms - {"cli", "api"}  # whose door is the package itself


@pytest.mark.parametrize("room", DOORS)
def test_a_door_gives_what_it_names_whatever_was_imported_before(room: str):
    """A lazy attribute would lose against a submodule of its name that was imported earlier."""
    door = import_module(f"segmeter.{room}")
    submodules = {path.stem for path in (SOURCE / room).iterdir()}
    is_lazy = (SOURCE / room / "__init__.pyi").exists()
    assert door.__all__
    for name in door.__all__:
        assert getattr(door, name) is not None
        assert not (is_lazy and name in submodules), f"{name} is a submodule as well"


def test_doors_of_rooms_that_score_masks_do_not_import_torch():
    rooms = sorted(set(DOORS) - OF_TORCH)
    code = f"import sys, importlib\nfor room in {rooms}: importlib.import_module('segmeter.' + room)\n"
    code += "assert 'torch' not in sys.modules and 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_stub_of_the_package_lists_what_it_imports():
    """The package gives what the stub imports; type checkers read the list."""
    assigned = [node for node in ast.parse((SOURCE / "__init__.pyi").read_text()).body if isinstance(node, ast.Assign)]
    (listed,) = [ast.literal_eval(node.value) for node in assigned]
    assert set(listed) == set(segmeter.__all__)


def test_old_names_work_and_say_so():
    with pytest.warns(DeprecationWarning, match="segmeter.Exporter is called HostCopier now"):
        assert segmeter.Exporter is segmeter.HostCopier
