"""Folders whose files are damaged, lack something or are links are refused by name: nothing from outside is shown."""

import json
from pathlib import Path

import pytest
from PIL import Image

from segmeter.errors import InputError
from segmeter.files import write_json
from segmeter.report.html import write_index, write_report

from .conftest import fill_run, write_picture


@pytest.mark.parametrize("changed", [{"n_cases": "<b>"}, {"per_class": 3}, {"dataset": None}])
def test_figures_that_a_run_did_not_write_are_refused_by_name(run, changed):
    summary = json.loads((run / "metrics.json").read_text())
    write_json(run / "metrics.json", summary | changed)
    with pytest.raises(InputError, match=r"metrics.json(`|: is damaged, or was not written by segmeter)"):
        write_report(run)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, None, r"to hold metrics.json, .* or predictions, got .* Give a run's folder"),
        *(
            (name, "{broken\n", rf"{name}(, line 1)?: is damaged, or was not written by segmeter \(it is not JSON")
            for name in ("metrics.json", "history.jsonl")
        ),
        (
            "compare.json",
            '{"schema": 2, "folders": {}, "metrics": {}, "order": [], "rank_by": "iou"}',
            r"expected `compare\.json` to be what the run wrote beside its other files",
        ),
    ],
)
def test_a_folder_whose_file_is_missing_damaged_or_lacks_something_is_refused(tmp_path, name, content, message):
    """Mutation seen to fail: the error of whatever looked at it first."""
    if name:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        write_report(tmp_path)


SECRET = "TOP-SECRET-OUTSIDE"


@pytest.fixture
def outside(tmp_path):
    """What no page may show."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "image.webp").write_text(SECRET)
    (folder / "config.yaml").write_text(f"secret: {SECRET}\n")
    (folder / "run.json").write_text(json.dumps({"command": SECRET}))
    (folder / "layers.json").write_text(json.dumps({"case": SECRET}))
    (folder / "history.jsonl").write_text(json.dumps({"step": 1, "loss": 1.0, SECRET: 2.0}) + "\n")
    Image.new("RGB", (8, 8)).save(folder / "first_batch.png")
    return folder


@pytest.fixture
def made(tmp_path, rng, spec):
    """The folders of a predict with one picture, of a training and of an evaluation, by what they hold."""
    predicted, trained, evaluated = (tmp_path / name for name in ("predict", "train", "eval"))
    (predicted / "predictions").mkdir(parents=True)
    write_picture(predicted, "a", rng, spec, referenced=False)
    write_json(predicted / "run.json", {"command": "predict"})
    (predicted / "config.yaml").write_text("a: 1\n")
    trained.mkdir()
    (trained / "history.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    fill_run(evaluated, rng, spec, "abcd")
    return {"predict": predicted, "train": trained, "eval": evaluated}


def plant(path, target):
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("run", "name"),
    [
        *(("predict", name) for name in ("pictures/a/image.webp", "pictures/a/layers.json", "run.json", "config.yaml")),
        *(("train", name) for name in ("history.jsonl", "first_batch.png")),
        ("eval", "cases.parquet"),
    ],
)
def test_a_linked_file_is_refused_by_name(run, name, made, outside):
    """Mutation seen to fail: read by its path."""
    folder, target = made[run], outside / Path(name).name
    write_report(folder)
    before = (folder / "report.html").read_bytes()
    if not target.exists():
        (folder / name).rename(target)
    plant(folder / name, target)
    with pytest.raises(InputError, match=f"{name}: is a link, and nothing in a run's folder is read"):
        write_report(folder)
    assert (folder / "report.html").read_bytes() == before


@pytest.mark.parametrize("name", ["run.json", "config.yaml"])
def test_the_index_names_a_linked_record_and_shows_nothing_of_it(name, made, outside):
    plant(made["predict"] / name, outside / name)
    page = write_index(made["predict"]).read_text()
    assert f"{name}: is a link, and nothing in a run" in page
    assert SECRET not in page
