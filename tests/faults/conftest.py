import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.faults.children import Children
from tests.faults.harness import make_data_and_clean_runs

collect_ignore = ["hanging_site"]  # its module lets files of the process that imports it hang


@pytest.fixture(scope="package")
def children() -> Iterator[Children]:
    with Children(PYTHONHASHSEED="4242") as made:  # another one than that of the clean runs
        yield made


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data and clean runs; tests work beside them, under runs/, which is empty when they begin."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_data_and_clean_runs()
    return folder


@pytest.fixture
def here(clean: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(clean)
    shutil.rmtree("runs", ignore_errors=True)
    return clean
