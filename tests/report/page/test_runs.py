"""The index of runs: figures, what distinguishes configurations, and links that open."""

from urllib.parse import unquote

import pytest

from segmeter.errors import InputError
from segmeter.files import write_json
from segmeter.report.html import write_index

from ..conftest import make_rows, write_run
from ..parsed import Page

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
