"""Sweeps in every launcher: a job that fails ends the command with its code and line, and the others' results stay."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.sharded import contents, make_masks, newest, run

SCORE = ["predictions=predictions", "references=masks", "data.num_classes=3", "data.ignore_index=255"]
FAST = ["metrics.bootstrap=10", "report.html=false", "hydra.sweep.dir=out"]
pytestmark = pytest.mark.usefixtures("in_here")
PLUGIN = """
import os, signal
from segmeter.cli.commands import score
before = score.run_score
def run(config, job):
    if config.run.name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return before(config, job)
score.run_score = run
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweeps")
    make_masks(root)
    (root / "sweep_plugin.py").write_text(PLUGIN)
    return root


def folders(out: str) -> dict[str, dict[str, object]]:
    """The summary of each job that was done."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(Path(out).glob("*/metrics.json"))}


@pytest.mark.parametrize(
    "launcher", ["basic", *(pytest.param(name, marks=pytest.mark.slow) for name in ("joblib", "submitit_local"))]
)
def test_a_failing_job_ends_the_command_and_leaves_the_others(
    launcher: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first job fails, the second runs all the same. Mutation seen to fail: outcomes of other processes dropped."""
    more = {"joblib": ["hydra.launcher.n_jobs=2"], "submitit_local": ["hydra.launcher.timeout_min=5"]}.get(launcher, [])
    broken = [f"hydra.sweep.dir={tmp_path / 'out'}", f"hydra/launcher={launcher}", *more]
    swept = "data.num_classes=2,3"  # of two classes, the third label is refused
    assert run("score", "-m", *SCORE[:2], *SCORE[3:], *FAST[:2], *broken, swept) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("segmeter: sweep:")]
    assert any("sweep: job 0 (" in line and "data.num_classes=2" in line and "ended with 2: " in line for line in lines)
    assert lines[-1] == f"segmeter: sweep: 1 of 2 jobs failed; the results of the others are in {tmp_path / 'out'}."
    done = folders(str(tmp_path / "out"))
    assert [name.partition("_")[0] for name in done] == ["1"]
    assert {one["n_cases"] for one in done.values()} == {11}


def test_the_shards_of_a_run_are_a_sweep(tmp_path: Path) -> None:
    """What docs/scale.md says for a cluster, here one after another."""
    out = tmp_path / "out"
    assert run("score", *SCORE, *FAST[:2], "run.name=whole", f"run.root={tmp_path}") == 0
    assert run("score", "-m", *SCORE, *FAST[:2], f"hydra.sweep.dir={out}", "shard=1/3,2/3,3/3") == 0
    shards = ",".join(str(path.parent) for path in sorted(out.glob("*/metrics.json")))
    assert run("merge", f"runs=[{shards}]", f"run.root={tmp_path}") == 0
    assert contents(newest(tmp_path / "merge")) == contents(newest(tmp_path / "score"))


@pytest.mark.slow
def test_plugins_load_in_the_child_and_a_killed_job_is_named(here: Path, tmp_path: Path) -> None:
    """The plugin kills the process of one job; without it in the child that job would end well."""
    arguments = [*SCORE, *FAST[:2], f"hydra.sweep.dir={tmp_path / 'out'}", "plugins=[sweep_plugin]"]
    arguments += ["hydra/launcher=submitit_local", "run.name=fine,killed"]
    code = "import sys; sys.path.insert(0, ''); from segmeter.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "score", "-m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 3, done.stderr
    assert "sweep: job 1 (" in done.stderr
    assert "its process ended without a result" in done.stderr
    assert len(folders(str(tmp_path / "out"))) == 1
