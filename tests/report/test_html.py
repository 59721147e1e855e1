"""The page: figures that are right, nothing loaded, injected or shown from outside, old or new but never half."""

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.errors import ConfigError, InputError
from segmeter.files import write_json
from segmeter.metrics.calibration_file import summarise_calibration
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.measures import InstancesConfig, SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.probabilities import Calibration
from segmeter.report.config import ReportConfig
from segmeter.report.html import write_index, write_report

from .conftest import HOSTILE, HOSTILE_IDS, Page, fill_run, make_rows, row_of, unpack_page, write_picture, write_run


def render(folder, config=None):
    return Page(write_report(folder, config).read_text())


def data_of(page):
    """The block of data as the script reads it, with columns by key."""
    found = unpack_page(next(data for tag, data in page.texts if tag == "script"))
    return found | {"columns": {column["key"]: column for column in found["columns"]}}


def pictures_of(page):
    return json.loads([data for tag, data in page.texts if tag == "script"][1])


def test_the_page_holds_every_case_with_its_scores(run):
    found = data_of(render(run))
    counts = {row.case_id: row.counts for row in read_cases(run)}
    assert found["columns"]["id"]["values"] == list("abcdefgh")
    for case_id, score in zip("abcdefgh", found["columns"]["headline"]["values"], strict=True):
        table = counts[case_id]
        overlap = table.diagonal() / (table.sum(0) + table.sum(1) - table.diagonal())
        assert score == pytest.approx(overlap.mean(), abs=5e-5)  # four decimals
    assert found["sort"] == "headline"


def test_the_page_loads_nothing_and_its_policy_allows_only_its_own_style_and_script(run):
    text = write_report(run).read_text()
    page = Page(text)
    assert {name for name, _ in page.tags} >= {"svg", "table", "style", "script"}
    for _, attributes in page.tags:
        assert not {"src", "srcset", "action", "style", "xlink:href"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#").startswith("#")
    assert not {"link", "iframe", "object", "embed", "base", "form"} & {name for name, _ in page.tags}
    policy = next(tag["content"] for tag in page.all("meta") if tag.get("http-equiv"))
    for kind in ("style", "script"):
        body = re.search(f"<{kind}>(.*?)</{kind}>", text, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in policy


def test_hostile_names_stay_text(tmp_path, rng):
    fill_run(tmp_path, rng, ClassSpec(task="multiclass", names=HOSTILE, colours=((9, 9, 9),) * 4), HOSTILE_IDS)
    write_json(tmp_path / "run.json", {"<b>key</b>": "</table><script>alert(4)</script>", "argv": ["<i>"]})
    (tmp_path / "config.yaml").write_text("x: </pre><script>alert(5)</script>\n")
    page, plain = render(tmp_path), tmp_path / "plain"
    plain.mkdir()
    fill_run(plain, rng, ClassSpec(task="multiclass", names=tuple("abcd"), colours=((9, 9, 9),) * 4), "x")
    (plain / "config.yaml").write_text("x: y\n")
    write_json(plain / "run.json", {"key": "value"})
    assert {name for name, _ in page.tags} == {name for name, _ in render(plain).tags}
    assert [tag.get("type") for tag in page.all("script")] == ["text/plain", "application/json", None]
    assert len(page.all("style")) == 1
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
    values = [attributes.get("data-value") for attributes in page.all("td")]
    assert set(HOSTILE) <= set(values)
    assert set(data_of(page)["columns"]["id"]["values"]) == set(HOSTILE_IDS)
    assert set(pictures_of(page)) == set(HOSTILE_IDS)
    assert "</table><script>alert(4)</script>" in page.text("td")
    assert "x: </pre><script>alert(5)</script>" in page.text("pre")


def test_pictures_are_in_the_page_or_beside_it_and_those_that_are_too_much_are_named(run):
    inside = pictures_of(render(run))
    assert set(inside) == set("abcdefgh")
    beside = pictures_of(render(run, ReportConfig(pictures="link")))
    for case_id, picture in beside.items():
        for name, path in picture["files"].items():
            assert base64.b64encode((run / path).read_bytes()).decode() == inside[case_id]["files"][name]
    page = render(run, ReportConfig(picture_mb=2.5 * len(json.dumps(inside["h"])) / 2**20))
    assert "h" in pictures_of(page)  # the worst
    assert any("leaves no room for 6 pictures" in text for text in page.text("p"))


def test_undefined_is_shown_as_such_and_multilabel_has_no_confusion(tmp_path, spec):
    empty = CaseRow(case_id="empty", height=2, width=2, counts=np.zeros((3, 3), np.int64))
    ground = CaseRow(case_id="ground only", height=2, width=2, counts=np.diag([4, 0, 0]))
    write_run(tmp_path, [empty, ground], spec)
    page = render(tmp_path)
    scores = dict(zip(*(data_of(page)["columns"][key]["values"] for key in ("id", "headline")), strict=True))
    assert scores["ground only"] == 1
    assert np.isnan(scores["empty"])
    values = [attributes.get("data-value") for attributes in page.all("td")]
    assert values[values.index("car") + 1] == ""  # a class that never occurs has no IoU
    assert page.text("td").count("n/a") >= 2
    planes = ClassSpec(task="multilabel", names=("a", "b"), colours=((9, 0, 0), (0, 9, 0)))
    write_run(tmp_path, [CaseRow(case_id="x", height=4, width=4, counts=np.ones((2, 2, 2), np.int64))], planes)
    assert render(tmp_path).text("h2")[-3:] == ["Classes", "Cases", "Run"], "no confusion between planes"


def measured_run(folder, rng, names=("ground", "tree", "car")):
    """An evaluation with surfaces, one class missed once, and probabilities."""
    spec = ClassSpec(task="multiclass", names=names, colours=((0, 0, 0), (0, 200, 0), (200, 0, 0)))
    config = MetricsConfig(bootstrap=100, measures=(SurfaceConfig(), InstancesConfig()))
    sums, rows = Calibration(num_classes=3), []
    for i in range(4):
        target = np.zeros((12, 16), np.uint8)
        target[2:6, 2:7], target[8:11, 9:14] = 1, 2
        labels = np.roll(target, i, 1)
        if i == 3:
            labels[labels == 1] = 0
        rows.append(row_of(str(i), target, labels, spec, config))
        sums.update(target, np.moveaxis(rng.dirichlet((1, 1, 1), target.shape) * 0.5 + np.eye(3)[labels] * 0.5, -1, 0))
    summary = write_run(folder, rows, spec, config) | {"calibration": summarise_calibration(sums.compute(), spec)}
    write_json(folder / "metrics.json", summary)
    return summary


def test_measures_and_probabilities_are_shown_with_their_failures(tmp_path, rng):
    summary = measured_run(tmp_path, rng)
    page = render(tmp_path)
    titles = page.text("h2")
    assert titles.index("Confusion") < titles.index("Cases") < titles.index("Measures") < titles.index("Probabilities")
    rows = {tuple(row[:2]): row for row in page.rows}
    assert "inf" in rows["HD (pixels)", "tree"]
    assert {"HD95 (pixels)", "HD (pixels)", "tp"} <= set(page.text("a"))
    entry = summary["calibration"]["per_class"]["car"]
    assert f"{entry['average_precision']:.4f}" in page.text("td")
    assert "precision and recall" in page.text("figcaption")
    assert any(tag.get("data-value") == "inf" for tag in page.all("td"))


def test_names_of_classes_and_groups_are_escaped_in_charts_and_tables(tmp_path, rng, spec):
    measured_run(tmp_path / "measured", rng, names=HOSTILE[:3])
    page = render(tmp_path / "measured")
    assert len(page.all("script")) == 4
    assert not page.all("img")
    config = MetricsConfig(bootstrap=0, groups={"green <i>": ("ground", "tree")})
    write_run(tmp_path / "grouped", make_rows(rng, spec, "ab"), spec, config)
    assert "green <i> (ground, tree)" in render(tmp_path / "grouped").text("a")


def test_conventions_are_shown_with_what_differs(tmp_path, rng, spec):
    config = MetricsConfig(bootstrap=0, convention="all")
    summary = write_run(tmp_path, make_rows(rng, spec, "abc"), spec, config)
    entries, page = {entry["name"]: entry for entry in summary["conventions"]}, render(tmp_path)
    rows = {row[0]: row for row in page.rows if row and row[0] in entries}
    assert list(rows) == list(entries)
    assert rows["smp"][1] == f"{entries['smp']['figures']['mean_iou']:.4f}"
    assert "all pixels pooled" in rows["smp"][-1]
    assert any("0.0 for the mean distance when every object was missed" in text for text in page.text("p"))


def test_a_folder_of_predictions_shows_its_pictures(tmp_path, rng, spec):
    (tmp_path / "predictions").mkdir()
    assert not render(tmp_path).all("section")
    for case_id in ("b", "../a"):
        write_picture(tmp_path, case_id, rng, spec, referenced=False)
    page = render(tmp_path)
    assert set(pictures_of(page)) == {"../a", "b"}
    assert data_of(page)["columns"]["id"]["values"] == ["../a", "b"]
    assert data_of(page)["classes"] == ["ground", "tree", "car"]
    assert not [text for tag, text in page.texts if "IoU" in text and tag not in ("script", "style")]


@pytest.mark.parametrize("changed", [{"n_cases": "<b>"}, {"per_class": 3}, {"dataset": None}])
def test_figures_that_a_run_did_not_write_are_refused_by_name(run, changed):
    summary = json.loads((run / "metrics.json").read_text())
    write_json(run / "metrics.json", summary | changed)
    with pytest.raises(InputError, match=r"metrics.json(`|: is damaged, or was not written by segmeter)"):
        write_report(run)


BROKEN = r"is damaged, or was not written by segmeter \(it is not JSON"
COMPARED = '{"schema": 2, "folders": {}, "metrics": {}, "order": [], "rank_by": "iou"}'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none", "", r"to hold metrics.json, .* or predictions, got .* Give a run's folder"),
        ("metrics.json", "{broken\n", f"metrics.json.*: {BROKEN}"),
        ("history.jsonl", "{broken\n", f"history.jsonl, line 1: {BROKEN}"),
        ("compare.json", COMPARED, r"expected `compare\.json` to be what the run wrote beside its other files"),
    ],
)
def test_a_folder_whose_file_is_missing_damaged_or_lacks_something_is_refused(tmp_path, name, content, message):
    """Mutation seen to fail: the error of whatever looked at it first."""
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        write_report(tmp_path)


EVALUATED = ("pictures/h/image.webp", "pictures/h/layers.json", "run.json", "config.yaml", "cases.parquet")


@pytest.mark.parametrize("name", [*EVALUATED, "history.jsonl", "first_batch.png"])
def test_a_linked_file_is_refused_by_name(run, name, tmp_path_factory):
    """Mutation seen to fail: read by its path."""
    if name not in EVALUATED:  # of a training
        (run / "metrics.json").unlink()
        (run / "history.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
        Image.new("RGB", (8, 8)).save(run / "first_batch.png")
    before = write_report(run).read_bytes()
    (run / name).symlink_to((run / name).rename(tmp_path_factory.mktemp("outside") / Path(name).name))
    with pytest.raises(InputError, match=f"{name}: is a link, and nothing in a run's folder is read"):
        write_report(run)
    assert (run / "report.html").read_bytes() == before


@pytest.mark.parametrize("name", ["run.json", "config.yaml"])
def test_the_index_names_a_linked_record_and_shows_nothing_of_it(run, name, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / name
    outside.write_text('{"command": "TOP-SECRET"}')
    (run / name).unlink()
    (run / name).symlink_to(outside)
    page = write_index(run).read_text()
    assert f"{name}: is a link, and nothing in a run" in page
    assert "TOP-SECRET" not in page


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("overlays", (-1, 0), -2),
        ("panel", (128, 4096), 127),
        ("panel", (128, 4096), 4097),
        ("worst", (0, 100), -1),
        ("picture_mb", (0.1,), 0),
        ("pictures", ("embed", "link"), "none"),
    ],
)
def test_ranges_hold_at_their_ends(key, good, bad):
    for value in good:
        assert getattr(ReportConfig(**{key: value}), key) == value
    with pytest.raises(ConfigError, match=key):
        ReportConfig(**{key: bad})
