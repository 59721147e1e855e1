"""Pages: what they may load, that all is escaped, missing and damaged files, and the index of runs."""

import html
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

import segmeter.report.page as room
from segmeter.errors import InputError
from segmeter.files import write_json
from segmeter.records import read_json
from segmeter.report.html import write_index, write_report
from segmeter.report.page.render import SCRIPTS, _when, if_there, render

from ..conftest import Page, make_rows, write_run

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


SPACED = "2026-01-02_<b>#%?"


@pytest.fixture
def root(tmp_path, rng, spec):
    for name, gamma in (("2026-01-01_first", 2), (SPACED, 1)):
        folder = tmp_path / "eval" / name
        write_run(folder, make_rows(rng, spec, "abcd"), spec)
        record = {"command": "eval", "state": "done", "start": name[:10], "overrides": [f"loss.gamma={gamma}"]}
        write_json(folder / "run.json", record)
        (folder / "config.yaml").write_text(f"data: {{root: {name[:10]}}}\nloss: {{gamma: {gamma}, name: focal}}\n")
        (folder / "report.html").write_text("a page")
        (folder / "shards" / "one").mkdir(parents=True)
        write_json(folder / "shards" / "one" / "run.json", {})  # belongs to its run
    trained = tmp_path / "train" / "t"
    trained.mkdir(parents=True)
    result = {"mean_iou": 0.5, "steps": 9, "hd95": "inf"}
    write_json(trained / "run.json", {"command": "train", "state": "failed", "result": result})
    return tmp_path


def test_each_command_has_a_table_with_figures_and_differences(root):
    page = Page(write_index(root).read_text())
    heads = [row for row in page.rows if "run" in row]
    scores = ["mean IoU", "mean Dice", "pixel accuracy"]
    assert heads[0] == ["run", "state", "start", *scores, "cases", "loss.gamma", "data.root"]
    newest, older = page.rows[1:3]
    assert newest[0] == f"eval/{SPACED}"
    assert older[0] == "eval/2026-01-01_first"
    assert (older[1], older[-3:]) == ("done", ["4", "2", "2026-01-01"])
    assert page.rows[-1][:5] == ["train/t", "failed", "0.5000", "9", "inf"]
    assert len(page.rows) == 5


def test_links_open_whatever_the_names_are(root):
    page = Page(write_index(root).read_text())
    links = [tag["href"] for tag in page.all("a")]
    assert len(links) == 2
    for link in links:
        assert "#" not in link
        assert (root / unquote(link)).read_text() == "a page"
    assert not page.all("b")


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(InputError, match="which has none"):
        write_index(tmp_path)


def test_a_configuration_that_may_not_be_read_is_none(root, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("segmeter.records.read_yaml", refuse)
    assert len(Page(write_index(root).read_text()).rows) == 5
