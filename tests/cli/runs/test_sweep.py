import json

import pytest

from segmeter.cli.runs.sweep import job_name, read_sweep, summarised
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
