"""The answers of one world of two processes, for all tests of this folder."""

from typing import Any

import pytest

from tests.distributed.asked import work
from tests.distributed.spawned import run_world


@pytest.fixture(scope="package")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_world(work, 2, tmp_path_factory.mktemp("world"))
