import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segmeter
from segmeter.records import hardware, source, versions


def test_versions_name_what_is_installed_and_what_is_missing() -> None:
    found = versions()
    assert found["segmeter"] == segmeter.__version__
    assert found["numpy"] == np.__version__
    assert found["python"].split(".")[:2] == [str(part) for part in sys.version_info[:2]]


def test_hardware_names_gpus_where_torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    facts = hardware()
    assert facts["gpus"] == [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    monkeypatch.delitem(sys.modules, "torch")
    assert hardware() == {name: fact for name, fact in facts.items() if name in hardware()}
    assert "gpus" not in hardware()
    assert "torch" not in sys.modules
    assert facts["cores"] >= 1
    assert facts["memory_gb"] > 0


def git(*arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


@pytest.mark.parametrize("name", [b"file", b"\x81"])
def test_source_is_the_commit_and_whether_it_was_changed(name: bytes, tmp_path, monkeypatch) -> None:
    """Names in no encoding hide no change."""
    if name != b"file" and sys.platform != "linux":
        pytest.skip("other systems refuse such names")
    monkeypatch.chdir(tmp_path)
    assert source() == {"commit": None, "dirty": None}
    git("init")
    git("config", "core.quotePath", "false")
    Path(os.fsdecode(name)).write_text("one")
    git("add", "--all")
    git("commit", "-m", "one")
    assert source()["dirty"] is False
    Path(os.fsdecode(name)).write_text("two")
    assert source()["dirty"] is True
    assert len(str(source()["commit"])) == 40


def test_the_name_of_a_branch_may_be_in_any_encoding(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    git("init")
    (tmp_path / ".git" / "HEAD").write_bytes(b"ref: refs/heads/caf\xe9\n")
    assert source() == {"commit": None, "dirty": None}


def test_the_commit_of_a_tree_too_large_to_look_through_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: Any) -> Any:
        if command[1] == "status":
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return subprocess.CompletedProcess(command, 0, b"0123456789abcdef\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert source() == {"commit": "0123456789abcdef", "dirty": None}
