import csv
import re

from segmeter.cli.sweep import SweepJob, best_job, print_sweep, write_sweep


def job(number, *, state="done", **result):
    values = {"loss.gamma": str(number), "loss.name": "<b>=focal</b>"}
    return SweepJob(number=number, folder=f"{number}_gamma-{number}", settings=values, result=result, state=state)


JOBS = [job(0, mean_iou=0.25, steps=10), job(1, mean_iou=0.1 + 0.2, steps=12), job(2, state="stopped: no disk")]


def test_the_best_is_the_highest_first_result_and_of_a_loss_the_lowest():
    assert best_job(JOBS) is JOBS[1]
    losses = [job(0, loss=0.5), job(1, loss=None), job(2, loss=0.4)]
    assert best_job(losses) is losses[2]
    assert best_job([job(0)]) is None


def test_the_csv_has_one_row_per_job_with_numbers_in_full(tmp_path):
    write_sweep(tmp_path, JOBS)
    with (tmp_path / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["mean_iou"] for row in rows] == ["0.25", "0.30000000000000004", ""]
    assert [row["steps"] for row in rows] == ["10", "12", ""]
    assert [row["state"] for row in rows] == ["done", "done", "stopped: no disk"]
    assert [row["folder"] for row in rows] == ["0_gamma-0", "1_gamma-1", "2_gamma-2"]


def test_the_page_loads_nothing_and_escapes_what_was_given(tmp_path):
    (tmp_path / "1_gamma-1").mkdir()
    (tmp_path / "1_gamma-1" / "report.html").touch()
    write_sweep(tmp_path, JOBS)
    page = (tmp_path / "sweep.html").read_text()
    assert "default-src &#39;none&#39;" in page
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
