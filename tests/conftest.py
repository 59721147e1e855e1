"""Fixtures that every room shares."""

import os
import shutil
import signal
import sysconfig
import traceback
from collections.abc import Generator
from pathlib import Path

import pytest

# One thread each for torch, BLAS and Arrow, here and in children, before any of them is imported: two halves of the
# tests share two cores, and threads that wait for each other there take up to six times as long
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell that starts the tests in the background makes them ignore Ctrl-C, and their children with them
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests verify is kept apart from what the user has verified."""
    os.environ["SEGMETER_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data beside the repository (or under $SEGMETER_DATA)."""
    folder = Path(os.environ.get("SEGMETER_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set SEGMETER_DATA to its folder")
    return folder


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.cli.sharded import make_checkpoint, make_masks  # with torch, which few rooms need

    root = tmp_path_factory.mktemp("made")
    make_masks(root)
    make_checkpoint(root / "net")
    return root


@pytest.fixture(scope="module")
def here(_made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with masks, predictions, images, and a checkpoint "net", which the tests of a module share."""
    return Path(shutil.copytree(_made, tmp_path_factory.mktemp("here"), dirs_exist_ok=True))


@pytest.fixture
def in_here(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the folder `here`, that of the module where it has its own."""
    monkeypatch.chdir(here)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that take minutes, unless they are asked for; skip those of a GPU where there is none."""
    for marker in ("slow", "fuzz"):
        if marker not in config.option.markexpr:
            long = [item for item in items if item.get_closest_marker(marker)]
            config.hook.pytest_deselected(items=long)
            items[:] = [item for item in items if item not in long]
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    for item in on_gpu if on_gpu and not _has_cuda() else []:
        item.add_marker(pytest.mark.skip("needs a CUDA device; this machine shows none"))


def _has_cuda() -> bool:
    import torch  # which few rooms need, and those that have such tests do

    return torch.cuda.is_available()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Skip a test on Windows where it asks for a pipe, a link, a signal or a module that only other systems have."""
    try:
        return (yield)
    except (AttributeError, ImportError, OSError) as error:
        if lacking := _lacks(error):
            pytest.skip(f"Windows has no {lacking}, which this test uses")
        raise


pytest_runtest_call = pytest_runtest_setup


def _lacks(error: Exception) -> str | None:
    """Return what a test of ours, rather than segmeter, asked Windows for; None if that isn't why it failed."""
    frames = [Path(each.filename) for each in traceback.extract_tb(error.__traceback__)]
    here, library = Path(__file__).parent, Path(sysconfig.get_path("stdlib"))
    ours = [each for each in frames if library not in each.parents or each.name == "monkeypatch.py"]
    if hasattr(os, "fork") or not (here in ours[-1].parents or ours[-1].name == "monkeypatch.py"):
        return None
    if isinstance(error, OSError):
        return "link without a right to make it" if getattr(error, "winerror", None) == 1314 else None
    return error.name or str(error)
