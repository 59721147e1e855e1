import json

import pytest

from segmeter.training.clock import SKIPPED
from segmeter.training.trainer import train
from tests.training.tiny import TinyCases, tiny_job


def test_the_table_and_the_trace_have_the_steps_that_were_asked_for(tmp_path):
    train(tiny_job(tmp_path, steps=SKIPPED + 4, epochs=None, profile_steps=2, cases=TinyCases(count=26)))
    events = json.loads((tmp_path / "profile" / "trace.json").read_text())["traceEvents"]
    assert len([event for event in events if event.get("name") == "segmeter.update" and event["ph"] == "X"]) == 2
    table = (tmp_path / "profile" / "table.txt").read_text()
    assert "aten::" in table
    assert "segmeter.forward" in table
    assert sorted(path.name for path in (tmp_path / "profile").iterdir()) == ["table.txt", "trace.json"]


def test_a_run_that_ends_before_leaves_what_was_recorded(tmp_path):
    train(tiny_job(tmp_path, steps=SKIPPED + 1, epochs=None, profile_steps=9))
    assert (tmp_path / "profile" / "table.txt").is_file()


@pytest.mark.parametrize("steps", [1, 3])
def test_the_weights_are_those_of_a_run_that_is_not_recorded(tmp_path, steps):
    losses = []
    for name in ("plain", "recorded"):
        folder = tmp_path / name
        folder.mkdir()
        train(tiny_job(folder, epochs=2, log_every=1, profile_steps=steps if name == "recorded" else 0))
        losses.append([json.loads(line).get("loss") for line in (folder / "history.jsonl").read_text().splitlines()])
    assert losses[0] == losses[1]
