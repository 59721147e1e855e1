import json

from segmeter.records import read_json_lines
from segmeter.training.loggers import History


def test_rows_come_back_and_undefined_numbers_are_null(tmp_path):
    history = History(tmp_path / "history.jsonl")
    history.write({"step": 1, "loss": 0.1 + 0.2})
    history.write({"step": 2, "val": {"mean_iou": float("nan"), "loss": float("inf")}})
    history.close()
    assert read_json_lines(tmp_path / "history.jsonl") == [
        {"step": 1, "loss": 0.30000000000000004},
        {"step": 2, "val": {"mean_iou": None, "loss": None}},
    ]


def test_each_line_is_on_disk_when_write_returns(tmp_path):
    history = History(tmp_path / "history.jsonl")
    history.write({"step": 1})
    assert (tmp_path / "history.jsonl").read_bytes() == b'{"step": 1}\n'
    assert history.position == 12
    history.close()


def test_a_resumed_history_is_cut_back_to_its_position(tmp_path):
    path = tmp_path / "history.jsonl"
    history = History(path)
    history.write({"step": 1})
    position = history.position
    history.write({"step": 2, "loss": 5})
    history.close()
    with path.open("ab") as file:
        file.write(b'{"step": 3, "lo')
    assert [row["step"] for row in read_json_lines(path)] == [1, 2]
    again = History(path, position=position)
    again.write({"step": 2, "loss": 7})
    again.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"step": 1}, {"step": 2, "loss": 7}]


def test_a_history_that_was_lost_starts_again(tmp_path):
    history = History(tmp_path / "history.jsonl", position=500)
    history.write({"step": 1})
    history.close()
    assert (tmp_path / "history.jsonl").read_bytes() == b'{"step": 1}\n'
