"""Links planted in a run's folder: nothing from outside it is shown by a page, whichever file leads there."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.files import write_json
from segmeter.report.html import write_index, write_report

from .conftest import fill_run, write_picture

SECRET = "TOP-SECRET-OUTSIDE"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
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
def predicted(tmp_path: Path, rng: np.random.Generator, spec: ClassSpec) -> Path:
    """The folder of a predict with one picture."""
    folder = tmp_path / "run"
    (folder / "predictions").mkdir(parents=True)
    write_picture(folder, "a", rng, spec, referenced=False)
    write_json(folder / "run.json", {"command": "predict"})
    (folder / "config.yaml").write_text("a: 1\n")
    return folder


def plant(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize("name", ["pictures/a/image.webp", "pictures/a/layers.json", "run.json", "config.yaml"])
def test_a_linked_file_is_refused_by_name(name: str, predicted: Path, outside: Path) -> None:
    """Mutation seen to fail: read by its path."""
    image = base64.b64encode((predicted / "pictures/a/image.webp").read_bytes()).decode()
    assert image in write_report(predicted).read_text()
    before = (predicted / "report.html").read_bytes()
    plant(predicted / name, outside / Path(name).name)
    with pytest.raises(InputError, match=f"{name}: is a link, and nothing in a run's folder is read"):
        write_report(predicted)
    assert (predicted / "report.html").read_bytes() == before


@pytest.mark.parametrize("name", ["history.jsonl", "first_batch.png"])
def test_a_linked_file_of_a_training_is_refused(name: str, tmp_path: Path, outside: Path) -> None:
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "history.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    plant(folder / name, outside / name)
    with pytest.raises(InputError, match=f"{name}: is a link"):
        write_report(folder)


@pytest.mark.parametrize("name", ["run.json", "config.yaml"])
def test_the_index_names_a_linked_record_and_shows_nothing_of_it(name: str, predicted: Path, outside: Path) -> None:
    plant(predicted / name, outside / name)
    page = write_index(predicted).read_text()
    assert f"{name}: is a link, and nothing in a run" in page
    assert SECRET not in page


def test_a_linked_table_of_cases_is_refused(tmp_path: Path, rng: np.random.Generator, spec: ClassSpec) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    fill_run(folder, rng, spec, "abcd")
    write_report(folder)
    (folder / "cases.parquet").rename(tmp_path / "outside.parquet")
    plant(folder / "cases.parquet", tmp_path / "outside.parquet")
    with pytest.raises(InputError, match=r"cases\.parquet: is a link"):
        write_report(folder)
