"""Pages: what they may load, how their scripts stand, that all is escaped, and files that are missing or damaged."""

import base64
import hashlib
import re
from pathlib import Path

import pytest

import segmeter.report.page as room
from segmeter.records import read_json_lines
from segmeter.report.page import comparison, evaluation, training
from segmeter.report.page.render import config_text, content_policy, if_there, load_json, render

SCRIPTS = Path(room.__file__).parent / "scripts"


def test_values_are_escaped_and_the_scripts_stand_in_their_order():
    values = {"tables": [], "kind": "runs", "when": "1 run", "title": "</title><script>alert(1)</script>"}
    text = render("list.html", scripts=("dom", "sorting"), **values).decode()
    assert "&lt;/title&gt;&lt;script&gt;" in text
    script = re.search("<script>(.*?)</script>", text, re.DOTALL).group(1)
    assert script.index("function el(") < script.index("function sortBy(")


def test_the_policy_names_pictures_beside_the_page_only_where_they_are_shown():
    inside, beside = content_policy("a", "b"), content_policy("a", "b", linked=True)
    assert "img-src data:;" in inside
    assert "img-src data: file: 'self';" in beside
    digest = base64.b64encode(hashlib.sha256(b"b").digest()).decode()
    assert f"script-src 'sha256-{digest}'" in inside
    assert not re.search("unsafe|http|\\*", inside + beside)


@pytest.mark.parametrize("page", [comparison, evaluation, training], ids=lambda page: page.__name__.rpartition(".")[2])
def test_every_script_of_a_page_is_there_once(page):
    assert len(set(page.SCRIPTS)) == len(page.SCRIPTS)
    assert all((SCRIPTS / f"{name}.js").is_file() for name in page.SCRIPTS)


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.js")), ids=lambda path: path.name)
def test_no_script_makes_markup_or_code_of_text(path):
    """Names reach a page as text nodes and attributes alone."""
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|fetch\(|XMLHttp", path.read_text()
    )


def test_what_is_there_is_read_and_what_is_missing_is_none(tmp_path):
    record, lines, config = (tmp_path / name for name in ("a.json", "a.jsonl", "config.yaml"))
    assert (load_json(record), if_there(read_json_lines, lines), config_text(config)) == (None, None, "")
    record.write_text('{"a": 1}')
    lines.write_text('{"a": 1}\n{"a": 2}\n{"a"')  # the last line was cut off
    config.write_bytes(b"a: \xff")
    assert load_json(record) == {"a": 1}
    assert if_there(read_json_lines, lines) == [{"a": 1}, {"a": 2}]
    assert config_text(config) == "a: \ufffd"
