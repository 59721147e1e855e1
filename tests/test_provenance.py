import json
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


def test_hardware_needs_no_torch() -> None:
    code = (
        "import json, sys; from segmeter.records import hardware; "
        "print(json.dumps(hardware())); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    facts = json.loads(done.stdout)
    assert facts["cores"] >= 1
    assert facts["memory_gb"] > 0
    assert "gpus" not in facts


def test_hardware_names_gpus_where_torch_is_loaded() -> None:
    import torch

    assert hardware()["gpus"] == [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def test_source_is_the_commit_and_whether_it_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.chdir(tmp_path)
    assert source() == {"commit": None, "dirty": None}
    git("init")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "one")
    assert source()["dirty"] is False
    (tmp_path / "file").write_text("two")
    assert source()["dirty"] is True
    assert len(str(source()["commit"])) == 40


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_in_no_encoding_hide_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(os.fsdecode(b"\x81")).touch()
    for line in ("init", "config core.quotePath false", "add --all"):
        subprocess.run(["git", *line.split()], check=True, capture_output=True)
    commit = ["-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-m", "one"]
    subprocess.run(["git", *commit], check=True, capture_output=True)
    Path(os.fsdecode(b"\x81")).write_text("two")
    assert source()["dirty"] is True


def test_the_name_of_a_branch_may_be_in_any_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init"], check=True, capture_output=True)
    (tmp_path / ".git" / "HEAD").write_bytes(b"ref: refs/heads/caf\xe9\n")
    assert source() == {"commit": None, "dirty": None}


def test_the_commit_of_a_tree_too_large_to_look_through_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: Any) -> Any:
        if command[1] == "status":
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return subprocess.CompletedProcess(command, 0, b"0123456789abcdef\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert source() == {"commit": "0123456789abcdef", "dirty": None}
