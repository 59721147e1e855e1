"""Pages: what they may load, how their scripts stand, that all is escaped, and files that are missing or damaged."""

import html
import re
from pathlib import Path

import pytest

import segmeter.report.page as room
from segmeter.records import read_json
from segmeter.report.html import write_report
from segmeter.report.page.render import SCRIPTS, _when, if_there, render

VALUES = {"tables": [], "kind": "runs", "when": "1 run", "title": "</title><script>alert(1)</script>"}
FILES = sorted((Path(room.__file__).parent / "scripts").glob("*.js"))


def test_values_are_escaped_and_the_scripts_stand_in_their_order():
    text = render("list.html", scripts=("dom", "sorting"), **VALUES).decode()
    assert "&lt;/title&gt;&lt;script&gt;" in text
    script = re.search("<script>(.*?)</script>", text, re.DOTALL).group(1)
    assert script.index("function el(") < script.index("function sortBy(")


def test_the_policy_names_pictures_beside_the_page_only_where_they_are_shown():
    pages = (render("list.html", linked=linked, **VALUES).decode() for linked in (False, True))
    inside, beside = (html.unescape(re.search('http-equiv="Content-[^>]*', page).group()) for page in pages)
    assert "img-src data:;" in inside
    assert "img-src data: file: 'self';" in beside
    assert not re.search("unsafe|https?:|\\*", inside + beside)


def test_every_script_is_of_a_page_and_there_once():
    for scripts in SCRIPTS.values():
        assert len(set(scripts)) == len(scripts)
    assert {path.stem for path in FILES} == {name for scripts in SCRIPTS.values() for name in scripts}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_script_makes_markup_or_code_of_text(path):
    """Names reach a page as text nodes and attributes alone."""
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|fetch\(|XMLHttp", path.read_text()
    )


def test_what_is_there_is_read_and_what_is_missing_is_none(tmp_path):
    record = tmp_path / "a.json"
    assert if_there(read_json, record) is if_there(read_json, record / "b") is None
    record.write_text('{"a": 1}')
    assert if_there(read_json, record) == {"a": 1}


def test_a_configuration_is_shown_as_it_was_written(run):
    (run / "config.yaml").write_bytes(b"a: \xff")
    assert "<pre>a: \ufffd</pre>" in write_report(run).read_text()


def test_a_run_may_state_another_start_than_a_time():
    """Earlier versions wrote the source of a training's weights there."""
    record = {"start": "48 of 48 tensors of encoder from weights.pt", "end": "2026-11-22T00:19:54+00:00"}
    assert _when({**record, "state": "done"}) == "done"
