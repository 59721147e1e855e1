"""Sweeps: which metric jobs are compared by, the tables of their results, and what a failing job leaves."""

import csv
import json
import math
import re

import pytest

from segmeter.classes import ClassSpec
from segmeter.cli.results import find_objective, results
from segmeter.cli.run_folder import note_done
from segmeter.cli.sweep import SweepJob, best_job, job_name, print_sweep, read_sweep, summarised, write_sweep
from segmeter.errors import ConfigError, RunError
from segmeter.metrics.config.measures import BoundaryConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from tests.cli.sharded import PLAIN, folders
from tests.data.crafted import put

SPEC = ClassSpec(task="multiclass", names=("sky", "car", "road"), colours=((0, 0, 0), (9, 9, 9), (1, 2, 3)))
METRICS = MetricsConfig(measures=(SurfaceConfig(), BoundaryConfig()))
SUMMARY = {
    "task": "multiclass",
    "dataset": {"mean_iou": 0.5, "mean_dice": 0.6, "pixel_accuracy": 0.7},
    "measures": {"hd95": {"car": {"mean": "inf"}, "mean": {"mean": 3.5}}, "pq": {"car": {"mean": 0.1, "dataset": 0.2}}},
}


def test_an_objective_is_named_in_full():
    assert find_objective(None, METRICS, SPEC) is None
    assert find_objective("mean_dice", MetricsConfig(), SPEC) == "mean_dice"
    assert find_objective("hd95", METRICS, SPEC) == "hd95/mean"
    assert find_objective("hd95/car", METRICS, SPEC) == "hd95/car"
    assert find_objective("boundary_iou", METRICS, SPEC.replace(task="multilabel")) == "boundary_iou/mean"


@pytest.mark.parametrize(("objective", "metrics", "said"), [
    ("hd59", METRICS, r"to be a metric that is measured, got 'hd59'\. Did you mean 'hd95"),
    ("hd95", MetricsConfig(), r"got 'hd95'\. Set metrics\.measures"),
    ("hd95/bus", METRICS, "'hd95/bus'"),
])  # fmt: skip
def test_an_objective_that_is_not_measured_is_refused_before_anything_is(objective, metrics, said):
    with pytest.raises(ConfigError, match=said):
        find_objective(objective, metrics, SPEC)


def test_the_objective_is_the_first_result():
    assert next(iter(results(SUMMARY, None).items())) == ("mean IoU", 0.5)
    assert list(results(SUMMARY, "hd95/mean").items())[:2] == [("hd95/mean", 3.5), ("mean IoU", 0.5)]
    assert results(SUMMARY, "hd95/car")["hd95/car"] == math.inf
    assert results(SUMMARY, "pq/car")["pq/car"] == 0.2, "of the whole data set where there is one"
    assert results(SUMMARY, "pixel_accuracy")["pixel_accuracy"] == 0.7


def leave(folder, overrides, **record):
    put(folder / "run.json", {"overrides": overrides, "state": "done", **record})


@pytest.fixture
def sweep(tmp_path):
    for number in (10, 2):
        overrides = ["data=cells", f"loss.gamma={number}", "+logger.api_key=[REDACTED]"]
        leave(tmp_path / f"{number}_gamma-{number}", overrides, result={"mean_iou": number / 100})
    return tmp_path


def test_jobs_are_read_in_the_order_of_their_numbers_with_what_varied(sweep):
    jobs = read_sweep(sweep)
    assert [(job.number, job.settings, job.result) for job in jobs] == [
        (2, {"loss.gamma": "2"}, {"mean_iou": 0.02}),
        (10, {"loss.gamma": "10"}, {"mean_iou": 0.1}),
    ]
    put(sweep / "3_gamma-3" / "run.json", '{"state": ')  # half a record
    assert [(job.number, job.state) for job in read_sweep(sweep)] == [(2, "done"), (3, "unknown"), (10, "done")]


def test_a_sweep_that_fails_still_shows_what_was_done(sweep, capsys):
    with pytest.raises(RunError, match="no disk"), summarised(sweep):
        raise RunError("no disk")
    assert "0.1000" in capsys.readouterr().out
    assert (sweep / "sweep.csv").is_file()
    with pytest.raises(RunError), summarised(sweep / "refused"):  # its first job
        raise RunError("no disk")
    assert not (sweep / "refused").exists()


def test_a_folder_is_named_by_the_last_parts_of_the_keys_that_vary():
    assert job_name(0, {"data.root": "/data/a b", "loss": "focal"}) == "0_root--data-a-b_loss-focal"
    assert len(job_name(1, {"model.weights": "x" * 300})) <= 100


def test_an_infinite_result_is_a_value_that_has_its_place(tmp_path, capsys):
    """Mutation seen to fail: run.json kept null for what is not finite, so that "n/a" and a blank were shown."""
    for number, value in enumerate([math.inf, 4.5, math.nan, 3.5]):
        folder = tmp_path / f"{number}_min_size-{number}"
        leave(folder, [f"postprocess.min_size={number}"])
        note_done(folder, {"hd95/mean": value, "mean IoU": 0.5, "steps": 40})
    record = json.loads((tmp_path / "0_min_size-0" / "run.json").read_text())
    assert record["result"] == {"hd95/mean": "inf", "mean IoU": 0.5, "steps": 40}
    assert isinstance(record["result"]["steps"], int)
    with summarised(tmp_path):
        pass
    jobs = read_sweep(tmp_path)
    assert [job.result["hd95/mean"] for job in jobs] == [math.inf, 4.5, None, 3.5]
    assert best_job(jobs).number == 3
    assert best_job(jobs[:1]).number == 0, "if there is no other"
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line[:1].isdigit()]
    assert [row[3] for row in rows] == ["inf", "4.5", "n/a", "3.5"]
    with (tmp_path / "sweep.csv").open() as file:
        assert [row["hd95/mean"] for row in csv.DictReader(file)] == ["inf", "4.5", "", "3.5"]
    assert 'data-value="inf">inf</td>' in (tmp_path / "sweep.html").read_text()


def job(number, *, state="done", **result):
    values = {"loss.gamma": str(number), "loss.name": "<b>=focal</b>"}
    return SweepJob(number=number, folder=f"{number}_gamma-{number}", settings=values, result=result, state=state)


JOBS = [job(0, mean_iou=0.25, steps=10), job(1, mean_iou=0.1 + 0.2, steps=12), job(2, state="stopped: no disk")]


def test_the_best_is_the_highest_first_result_and_of_a_loss_the_lowest():
    assert best_job(JOBS) is JOBS[1]
    losses = [job(0, loss=0.5), job(1, loss=None), job(2, loss=0.4)]
    assert best_job(losses) is losses[2]
    assert best_job([job(0)]) is None


def test_a_sweep_by_a_headline_that_is_better_when_lower_takes_the_smallest():
    """Mutation seen to fail: the result by its name in words, of which a sweep takes the highest."""
    jobs = []
    for number, value in enumerate((3.0, 1.5, 2.0)):
        measures = {"hd95": {"mean": {"mean": value}}}
        found = results(SUMMARY | {"headline_score": "hd95/mean", "measures": measures}, None)
        assert list(found.items())[:2] == [("hd95/mean", value), ("mean IoU", 0.5)]
        jobs.append(job(number, **found))
    assert best_job(jobs) is jobs[1]


def test_the_files_of_a_sweep_have_a_row_per_job_with_numbers_in_full_and_escape_what_was_given(tmp_path):
    put(tmp_path / "1_gamma-1" / "report.html", "")
    write_sweep(tmp_path, JOBS)
    with (tmp_path / "sweep.csv").open() as file:
        rows = [[row[key] for key in ("folder", "mean_iou", "steps", "state")] for row in csv.DictReader(file)]
    assert rows == [
        ["0_gamma-0", "0.25", "10", "done"],
        ["1_gamma-1", "0.30000000000000004", "12", "done"],
        ["2_gamma-2", "", "", "stopped: no disk"],
    ]
    page = (tmp_path / "sweep.html").read_text()
    assert "default-src &#39;none&#39;" in page, "loads nothing"
    assert "<b>=focal</b>" not in page
    assert "&lt;b&gt;=focal&lt;/b&gt;" in page
    assert "<b>0.3000</b>" in page
    assert 'href="1_gamma-1/report.html"' in page
    assert 'href="2_gamma-2/report.html"' not in page  # which was stopped before it had a report


def test_the_table_marks_the_best_and_shows_how_the_others_ended(capsys):
    print_sweep(JOBS)
    lines = [re.split(r" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert ["1", "1", "<b>=focal</b>", "best", "0.3000", "12"] in lines
    assert ["2", "2", "<b>=focal</b>", "stopped: no disk", "n/a", "n/a"] in lines


LAUNCHERS = {"basic": [], "joblib": ["hydra.launcher.n_jobs=2"], "submitit_local": ["hydra.launcher.timeout_min=5"]}


@pytest.mark.usefixtures("in_here")
@pytest.mark.parametrize(
    "launcher", [pytest.param(name, marks=[pytest.mark.slow] if more else []) for name, more in LAUNCHERS.items()]
)
def test_a_failing_job_ends_the_command_and_leaves_the_others(launcher, tmp_path, refused):
    """The first job fails, the second runs all the same. Mutation seen to fail: outcomes of other processes dropped."""
    out = tmp_path / "out"
    given = [*PLAIN[:2], *PLAIN[3:], "metrics.bootstrap=10", "report.html=false", f"hydra.sweep.dir={out}"]
    swept = "data.num_classes=2,3"  # of two classes, the third label is refused
    said = refused("score", "-m", *given, f"hydra/launcher={launcher}", *LAUNCHERS[launcher], swept)
    lines = [line for line in said.splitlines() if line.startswith("segmeter: sweep:")]
    assert any("sweep: job 0 (" in line and "data.num_classes=2" in line and "ended with 2: " in line for line in lines)
    assert lines[-1] == f"segmeter: sweep: 1 of 2 jobs failed; the results of the others are in {out}."
    done = folders(out)
    assert [name.partition("_")[0] for name in done] == ["1"]
    assert {one["n_cases"] for one in done.values()} == {11}
