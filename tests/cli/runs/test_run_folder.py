import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from segmeter.cli.config.schema import Common, Launched, RunConfig
from segmeter.cli.folders import Job
from segmeter.cli.run_folder import MASK, open_run
from segmeter.distributed.config import LocalConfig
from segmeter.errors import ConfigError, DataError, InputError, PeerError, RunError
from segmeter.files import write_bytes

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


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="a folder in which none can be made is /proc")
@pytest.mark.parametrize("name", ["/proc/none", "/proc/none/below", "loop/below"])
def test_a_root_that_can_never_be_made_is_bad_input(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=r"`run.root` to be a folder that can be written, got .*(none|loop)"):
        with open_run(config(tmp_path / name), JOB, facts={}):
            raise AssertionError


def test_a_root_that_is_a_file_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"`run.root` to be a folder that can be written, got .*file"):
        with open_run(config(tmp_path / "file"), JOB, facts={}):
            pass


def ended(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["state"])


def test_a_fault_of_the_system_is_one_line_with_file_cause_and_next_step(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught, open_run(config(tmp_path), JOB, facts={}) as folder:
        raise OSError(28, "No space left on device", "x.png")
    (line,) = caught.value.problems
    assert line.startswith("eval: x.png: No space left on device. ")
    assert line.endswith("Make room there and run it again.")
    assert ended(folder) == f"stopped: {line}"


def fill_disk(path: Path) -> None:
    """Write one file, and find no room for another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    raise OSError(28, "No space left on device", "x.png")


@pytest.mark.parametrize(
    ("made", "remedy"),
    [
        ("validation/x.png", "run it again."),
        ("manifest.json", "go on with resume={folder}."),
        ("checkpoints/step-0000003/manifest.json", "go on with resume={folder}."),
        ("shards/1of2/run.json", "go on with resume={folder}."),
    ],
)
def test_a_resume_is_advised_where_there_is_something_to_go_on_from(tmp_path: Path, made: str, remedy: str) -> None:
    """Mutation seen to fail: advised for any folder, of which resume= then says that it holds no manifest."""
    config = Launched(run=RunConfig(root=tmp_path), launch=LocalConfig())
    with pytest.raises(RunError) as error, open_run(config, JOB, facts={}) as folder:
        fill_disk(folder / made)
    assert error.value.problems[0].endswith(f"Make room there and {remedy.format(folder=folder)}")


def test_a_shard_of_a_launch_advises_to_resume_the_whole(tmp_path: Path) -> None:
    """Mutation seen to fail: the shard's own folder, which goes on with that part alone."""
    shard = tmp_path / "whole" / "shards" / "1of2"
    config = Launched(run=RunConfig(root=tmp_path), launch=LocalConfig())
    job = Job("eval", ("run.name=x",), shard)
    with pytest.raises(RunError) as error, open_run(config, job, facts={}) as folder:
        fill_disk(folder / "manifest.json")
    assert error.value.problems[0].endswith(f"Make room there and go on with resume={tmp_path / 'whole'}.")


def test_a_fault_of_another_process_keeps_its_code_and_says_how_to_go_on(tmp_path: Path) -> None:
    """Mutation seen to fail: another process's fault, without a word of the run that can go on."""
    config = Launched(run=RunConfig(root=tmp_path), launch=LocalConfig())

    def lose_another_process(folder: Path) -> None:
        (folder / "checkpoints" / "step-0000003").mkdir(parents=True)
        (folder / "checkpoints" / "step-0000003" / "manifest.json").write_text("{}")
        raise PeerError("process 2 of 2 failed: no sign of life.", exit_code=143)

    with pytest.raises(RunError) as error, open_run(config, JOB, facts={}) as folder:
        lose_another_process(folder)
    assert error.value.problems == (f"process 2 of 2 failed: no sign of life. Then go on with resume={folder}.",)
    assert error.value.exit_code == 143


def test_a_log_and_a_record_that_fail_hide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(operation: str, path: Path) -> None:
        raise OSError(28, "No space left on device")

    def work() -> None:
        monkeypatch.setattr("segmeter.files.watch", fail)
        raise RunError("the first.")

    with pytest.raises(RunError, match=r"^the first\.$"), open_run(config(tmp_path), JOB, facts={}):
        work()
    assert capsys.readouterr().err.count("log.txt: No space left on device. Nothing more is logged.") == 1


def test_bad_input_leaves_nothing_of_a_new_run_and_a_resumed_one_in_place(tmp_path: Path) -> None:
    with pytest.raises(DataError), open_run(config(tmp_path / "runs"), JOB, facts={}) as folder:
        raise DataError("bad.")
    assert not (tmp_path / "runs").exists()
    with open_run(config(tmp_path / "runs"), JOB, facts={}) as folder:
        pass
    with pytest.raises(DataError), open_run(config(tmp_path / "runs"), JOB, resumed=folder, facts={}):
        raise DataError("bad.")
    assert ended(folder) == "stopped: bad."


def test_what_is_refused_at_a_resume_changes_nothing(tmp_path: Path) -> None:
    def refuse() -> None:
        raise ConfigError("another run.")

    with open_run(config(tmp_path), JOB, facts={}) as folder:
        pass
    (folder / ".tmp-left").write_text("x")
    for name in (".lock", ".owner"):
        (folder / name).unlink()  # as in a folder that was copied
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError, match="another run"):
        with open_run(config(tmp_path), JOB, resumed=folder, facts={}, accept=refuse):
            pass
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with open_run(config(tmp_path), JOB, resumed=folder, facts={}):
        assert not (folder / ".tmp-left").exists()
    first, second = (json.loads(text) for text in (before["run.json"], (folder / "run.json").read_bytes()))
    assert second["start"] == first["start"] < second["resumed"]


@pytest.mark.parametrize("name", [".lock", "log.txt", "run.json", "config.yaml", "overrides.yaml", "results.json"])
def test_a_link_in_a_resumed_folder_is_never_written_through(name: str, tmp_path: Path) -> None:
    with open_run(config(tmp_path), JOB, facts={}) as folder:
        pass
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(victim)
    appended = name in (".lock", "log.txt")  # the others are replaced
    with pytest.raises(InputError, match="is a link") if appended else nullcontext():
        with open_run(config(tmp_path), JOB, resumed=folder, facts={}):
            write_bytes(folder / "results.json", b"{}")
    assert victim.read_text() == "precious"


EIGHT = """
import os, sys
from pathlib import Path
from segmeter.cli.config.schema import Common, Launched, RunConfig
from segmeter.cli.folders import Job
from segmeter.cli.run_folder import open_run
ready, go = os.pipe()
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(ready, 1)  # until the parent lets all of them go at once
        with open_run(Common(run=RunConfig(root=Path(sys.argv[1]), name="x")), Job("eval", (), None), facts={}):
            pass
        os._exit(0)
    children.append(child)
os.close(go)
sys.exit(max(os.waitpid(child, 0)[1] for child in children))
"""


def test_eight_processes_of_the_same_second_get_eight_folders(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", EIGHT, str(tmp_path)], check=True)
    assert len([path for path in (tmp_path / "eval").iterdir() if ended(path) == "done"]) == 8


def test_an_empty_folder_of_this_second_is_left_to_who_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmeter.cli.folders.run_name", lambda config, job: "x")
    with open_run(config(tmp_path), JOB, facts={}) as first:
        pass
    for path in first.iterdir():
        path.unlink()
    with open_run(config(tmp_path), JOB, facts={}) as second:
        assert second != first
