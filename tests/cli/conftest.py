"""Fixtures of the tests that type command lines."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command line that ends with a code of bad input; gives all that is said on standard error."""
    from tests.cli.sharded import run  # with torch, which few of the tests need

    def refuse(*arguments: str, code: int = 2) -> str:
        capsys.readouterr()
        assert run(*arguments) == code
        return capsys.readouterr().err

    return refuse
