"""The folder of a run: one process writes it, its records tell how it ended, and no secret is written."""

import json
import os
import platform
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from segmeter.cli.config.command_configs import Common, Launched, RunConfig
from segmeter.cli.folders import Job
from segmeter.cli.run_folder import MASK, is_secret, mask, mask_override, note_done, open_run
from segmeter.distributed.config import LocalConfig
from segmeter.errors import ConfigError, DataError, InputError, PeerError, RunError, SweepError
from segmeter.files import write_bytes
from tests.data.crafted import put

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


def test_a_folder_in_use_is_refused_with_its_process(tmp_path: Path) -> None:
    with open_run(config(tmp_path), JOB, facts={}) as folder:
        with pytest.raises(ConfigError, match=rf"is in use by process {os.getpid()} on {platform.node()}"):
            with open_run(config(tmp_path), JOB, resumed=folder, facts={}):
                pass
    with open_run(config(tmp_path), JOB, resumed=folder, facts={}) as again:
        assert again == folder


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="a folder in which none can be made is /proc")
@pytest.mark.parametrize("name", ["/proc/none", "/proc/none/below", "loop/below", "file"])
def test_a_root_that_can_never_be_made_is_bad_input(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"`run.root` to be a folder that can be written, got .*(none|loop|file)"):
        with open_run(config(tmp_path / name), JOB, facts={}):
            raise AssertionError


def ended(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["state"])


@pytest.fixture
def launched(tmp_path: Path) -> Launched:
    return Launched(run=RunConfig(root=tmp_path), launch=LocalConfig())


def leave(path: Path, error: Exception) -> None:
    """Write a file, and fail."""
    put(path, "{}")
    raise error


@pytest.mark.parametrize(("made", "place", "remedy"), [
    ("validation/x.png", None, "run it again."),
    ("manifest.json", None, "go on with resume={folder}."),
    ("checkpoints/step-0000003/manifest.json", None, "go on with resume={folder}."),
    ("shards/1of2/run.json", None, "go on with resume={folder}."),
    ("manifest.json", "whole/shards/1of2", "go on with resume={root}/whole."),  # a shard's own folder is a part
])  # fmt: skip
def test_a_resume_is_advised_where_there_is_something_to_go_on_from(tmp_path, launched, made, place, remedy):
    """Mutation seen to fail: advised for any folder, of which resume= then says that it holds no manifest."""
    job = Job("eval", ("run.name=x",), tmp_path / place if place else None)
    with pytest.raises(RunError) as error, open_run(launched, job, facts={}) as folder:
        leave(folder / made, OSError(28, "No space left on device", "x.png"))
    (line,) = error.value.problems
    assert line.startswith("eval: x.png: No space left on device. ")
    assert line.endswith(f"Make room there and {remedy.format(folder=folder, root=tmp_path)}")
    assert ended(folder) == f"stopped: {line}"


def test_a_fault_of_another_process_keeps_its_code_and_says_how_to_go_on(launched: Launched) -> None:
    """Mutation seen to fail: another process's fault, without a word of the run that can go on."""
    lost = PeerError("process 2 of 2 failed: no sign of life.", exit_code=143)
    with pytest.raises(RunError) as error, open_run(launched, JOB, facts={}) as folder:
        leave(folder / "checkpoints/step-0000003/manifest.json", lost)
    assert error.value.problems == (f"process 2 of 2 failed: no sign of life. Then go on with resume={folder}.",)
    assert error.value.exit_code == 143


def test_a_failed_run_says_why_also_where_its_log_and_its_record_fail(tmp_path, monkeypatch, capsys):
    def fail(operation: str, path: Path) -> None:
        raise OSError(28, "No space left on device")

    def work(how: str) -> None:
        if how == "full":
            monkeypatch.setattr("segmeter.files.watch", fail)
        raise RunError("train: the loss is nan.")

    with pytest.raises(RunError), open_run(config(tmp_path), JOB, facts={}) as folder:
        work("with room")
    assert ended(folder) == "stopped: train: the loss is nan."
    assert "the loss is nan" in (folder / "log.txt").read_text()
    with pytest.raises(RunError, match=r"^train: the loss is nan\.$"), open_run(config(tmp_path), JOB, facts={}):
        work("full")
    assert capsys.readouterr().err.count("log.txt: No space left on device. Nothing more is logged.") == 1


def test_the_log_has_every_problem_and_the_record_the_first(launched, monkeypatch):
    monkeypatch.setattr("segmeter.cli.run_folder.KEEP_SECONDS", -1.0)
    names = [f"{number}.png" for number in range(30)]
    with pytest.raises(DataError), open_run(launched, JOB, facts={}) as folder:
        leave(folder / "manifest.json", DataError([f"{name}: is truncated." for name in names]))
    assert ended(folder) == "stopped: 0.png: is truncated."
    lines = (folder / "log.txt").read_text().splitlines()
    assert [line.split()[-3] for line in lines] == [f"{name}:" for name in names]


def test_the_exit_code_of_a_shard_stays_where_the_folder_does(launched, monkeypatch):
    monkeypatch.setattr("segmeter.cli.run_folder.KEEP_SECONDS", -1.0)
    with pytest.raises(SweepError, match=r"the finished work is kept\. Go on with resume=") as error:
        with open_run(launched, JOB, facts={}) as folder:
            leave(folder / "shards/1of2/run.json", SweepError("a.png: is truncated.", exit_code=2))
    assert error.value.exit_code == 2


@pytest.mark.parametrize("file", ["metrics.json", "compare.json"])
def test_results_stay_if_their_pictures_or_page_are_refused(file: str, tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        if file == "compare.json":  # `merge` takes pictures before it notes that it is done
            note_done(folder, {})
        leave(folder / file, DataError("pictures/a.png: is a link."))

    with pytest.raises(DataError) as error, open_run(config(tmp_path), JOB, facts={}) as folder:
        work(folder)
    assert (folder / file).is_file()
    assert error.value.problems == ("pictures/a.png: is a link.", f"run: the results are kept in {folder}.")
    assert ended(folder) == "stopped: pictures/a.png: is a link."


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


# Eight processes, and one that is killed with the lock of the folder's last run
FORKED = """
import fcntl, os, signal, sys
from pathlib import Path
from segmeter.cli.config.command_configs import Common, RunConfig
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
assert not any(os.waitpid(child, 0)[1] for child in children)
last = max(Path(sys.argv[1], "eval").iterdir())
fcntl.flock((last / ".lock").open("a+"), fcntl.LOCK_EX)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_eight_processes_get_eight_folders_and_the_lock_of_a_killed_one_is_free(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", FORKED, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    folders = sorted((tmp_path / "eval").iterdir())
    assert [ended(path) for path in folders] == ["done"] * 8
    with open_run(config(tmp_path), JOB, resumed=folders[-1], facts={}) as again:
        assert again == folders[-1]


@pytest.mark.parametrize(("name", "expected"), [
    *((name, True) for name in ("api_key", "WANDB-API-KEY", "password", "webhook_url", "tokens")),
    *((name, False) for name in ("passes", "keys", "author", "patience")),  # and the names of its docstring
])  # fmt: skip
def test_names_of_secrets_are_known_and_those_that_look_alike_are_none(name, expected):
    assert is_secret(name) == expected


def test_values_are_masked_at_any_depth_and_nothing_else():
    values = {"logger": [{"token": "x", "url": "https://me:pw@host/a"}], "gamma": 2, "token": None}
    assert mask(values) == {"logger": [{"token": MASK, "url": f"https://{MASK}@host/a"}], "gamma": 2, "token": None}
    assert mask_override("+logger={api_key: x}") == f"+logger={MASK}"


@pytest.mark.parametrize(("key", "change"), [
    ("plugins", {"plugins": (MASK,)}),
    ("run.name", {"run": RunConfig(name=MASK)}),
])  # fmt: skip
def test_a_masked_configuration_is_refused_with_the_place_of_the_secret(key, change, tmp_path):
    with pytest.raises(ConfigError, match=rf"`{key}` is \[REDACTED\]"):
        with open_run(config(tmp_path).replace(**change), JOB, facts={}):
            pass
