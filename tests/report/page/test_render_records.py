"""Files of a run's folder: missing, damaged, or as they are."""

from segmeter.records import read_json_lines
from segmeter.report.page.render import config_text, if_there, load_json


def test_what_is_there_is_read(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}')
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": 2}\n{"a"')
    (tmp_path / "config.yaml").write_bytes(b"a: \xff")
    assert load_json(tmp_path / "a.json") == {"a": 1}
    assert if_there(read_json_lines, tmp_path / "a.jsonl") == [{"a": 1}, {"a": 2}]  # the last line was cut off
    assert config_text(tmp_path / "config.yaml") == "a: \ufffd"


def test_what_is_missing_is_none(tmp_path):
    assert load_json(tmp_path / "a.json") is None
    assert if_there(read_json_lines, tmp_path / "a.jsonl") is None
    assert config_text(tmp_path / "config.yaml") == ""
