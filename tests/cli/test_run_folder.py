import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from segmeter.cli.app import Job
from segmeter.cli.config.schema import Common, RunConfig
from segmeter.cli.run_folder import MASK, mask, mask_override, open_run, refuse_masked
from segmeter.errors import ConfigError, RunError

JOB = Job("eval", ("run.name=x", "+logger.api_key=abc"), None)


def config(root: Path, name: str | None = "x") -> Common:
    return Common(run=RunConfig(root=root, name=name))


def test_a_run_keeps_its_records_and_how_it_ended(tmp_path: Path) -> None:
    with open_run(config(tmp_path), JOB, facts={"data": "abc"}) as folder:
        assert json.loads((folder / "run.json").read_text())["state"] == "running"
    record = json.loads((folder / "run.json").read_text())
    assert record["state"] == "done"
    assert record["data"] == "abc"
    assert record["versions"]["numpy"]
    assert record["hardware"]["cores"] >= 1
    assert record["overrides"] == ["run.name=x", f"+logger.api_key={MASK}"]
    assert {"config.yaml", "overrides.yaml", "run.json", "log.txt"} <= {path.name for path in folder.iterdir()}
    assert "abc" not in (folder / "overrides.yaml").read_text()


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunError), open_run(config(tmp_path), JOB, facts={}) as folder:
        raise RunError("train: the loss is nan at step 7.")
    assert json.loads((folder / "run.json").read_text())["state"] == "stopped: train: the loss is nan at step 7."
    assert "the loss is nan at step 7" in (folder / "log.txt").read_text()


def test_runs_of_the_same_second_get_their_own_folders(tmp_path: Path) -> None:
    with open_run(config(tmp_path), JOB, facts={}) as first, open_run(config(tmp_path), JOB, facts={}) as second:
        assert first != second


def test_a_folder_in_use_is_refused_with_its_process(tmp_path: Path) -> None:
    with open_run(config(tmp_path), JOB, facts={}) as folder:
        with pytest.raises(ConfigError, match=rf"is in use by process {os.getpid()} on"):
            with open_run(config(tmp_path), JOB, resumed=folder, facts={}):
                pass
    with open_run(config(tmp_path), JOB, resumed=folder, facts={}) as again:
        assert again == folder


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with open_run(config(tmp_path), JOB, facts={}) as folder:
        pass
    code = (
        f"import fcntl,os,signal; f=open({str(folder / '.lock')!r},'a+'); "
        "fcntl.flock(f,fcntl.LOCK_EX); os.kill(os.getpid(),signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with open_run(config(tmp_path), JOB, resumed=folder, facts={}) as again:
        assert again == folder


def test_a_root_that_is_a_file_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"`run.root` to be a folder that can be written, got .*file"):
        with open_run(config(tmp_path / "file"), JOB, facts={}):
            pass


def test_secrets_are_masked_at_any_depth() -> None:
    values = {
        "logger": {"api_key": "abc", "project": "p"},
        "tokens": ["a"],
        "model": {"tokenizer": "t"},
        "password": None,
    }
    assert mask(values) == {
        "logger": {"api_key": MASK, "project": "p"},
        "tokens": [MASK],
        "model": {"tokenizer": "t"},
        "password": None,
    }
    assert mask_override("++a.secret=1") == f"++a.secret={MASK}"
    assert mask_override("~a.secret") == "~a.secret"


def test_a_masked_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"`logger.api_key` is \[REDACTED\].*Set it again"):
        refuse_masked({"logger": {"api_key": MASK}})
