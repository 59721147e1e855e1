import csv
import json
import math

import pytest

from segmeter.cli.run_folder import note_done
from segmeter.cli.sweep import best_job, job_name, read_sweep, summarised
from segmeter.errors import RunError


def leave(folder, overrides, **record):
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"overrides": overrides, "state": "done", **record}))


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


def test_a_job_that_left_half_a_record_is_shown_as_unknown(sweep):
    (sweep / "3_gamma-3").mkdir()
    (sweep / "3_gamma-3" / "run.json").write_text('{"state": ')
    assert [(job.number, job.state) for job in read_sweep(sweep)] == [(2, "done"), (3, "unknown"), (10, "done")]


def test_a_sweep_that_fails_still_shows_what_was_done(sweep, capsys):
    with pytest.raises(RunError, match="no disk"), summarised(sweep):
        raise RunError("no disk")
    out = capsys.readouterr().out
    assert "0.1000" in out
    assert (sweep / "sweep.csv").is_file()


def test_a_sweep_whose_first_job_was_refused_leaves_nothing(tmp_path):
    with pytest.raises(RunError), summarised(tmp_path / "sweep"):
        raise RunError("no disk")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_named_by_the_last_parts_of_the_keys_that_vary():
    assert job_name(0, {"data.root": "/data/a b", "loss": "focal"}) == "0_root--data-a-b_loss-focal"
    assert len(job_name(1, {"model.weights": "x" * 300})) <= 100


def test_an_infinite_result_is_a_value_that_has_its_place(tmp_path, capsys):
    """Mutation seen to fail: run.json kept null for what is not finite, so that "n/a" and a blank were shown."""
    for number, value in enumerate([math.inf, 4.5, math.nan, 3.5]):
        overrides = [f"postprocess.min_size={number}"]
        leave(tmp_path / f"{number}_min_size-{number}", overrides)
        note_done(tmp_path / f"{number}_min_size-{number}", {"hd95/mean": value, "mean IoU": 0.5, "steps": 40})
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
