"""Commands whose paths are URLs: the bytes of the same command on files of this machine."""

import io
import json
import logging
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.data.config import FolderConfig
from segmeter.data.verification.report import build_dataset
from segmeter.evaluation import evaluate
from segmeter.files import remove
from segmeter.records import cache_folder
from tests.cli.sharded import EVAL, PREDICT, SCORE, contents, newest, run, whole
from tests.data.crafted import write_zarr
from tests.data.formats_written import NAMES, coco_content, draw_mask

pytestmark = pytest.mark.usefixtures("in_here")


def given(arguments: list[str], **places: str) -> list[str]:
    return [f"{key}={places[key]}" if (key := line.partition("=")[0]) in places else line for line in arguments]


def test_masks_in_s3_give_the_bytes_of_masks_here_and_no_secret_is_kept(here, s3):
    expected = whole("score", SCORE)
    for name in ("masks", "predictions", "images"):
        s3.put_folder(here / name, f"{name}/")
    arguments = given(
        SCORE, references=f"{s3.url}/masks", predictions=f"{s3.url}/predictions", images=f"{s3.url}/images"
    )
    assert run("score", *arguments) == 0
    folder = newest("runs/score")
    assert contents(folder) == expected
    record = json.loads((folder / "run.json").read_bytes())
    assert (record["references"], record["predictions"]) == (f"{s3.url}/masks", f"{s3.url}/predictions")
    texts = [path.read_text() for path in folder.iterdir() if path.suffix in (".json", ".yaml", ".txt")]
    assert len(texts) >= 5
    assert not [text for text in texts if "the-secret-of-the-test" in text or "AKIAOFTHETEST" in text]


@pytest.mark.slow
def test_shards_copied_to_s3_are_merged_from_there(here, s3):
    expected = whole("score", SCORE)
    for number in (1, 2, 3):
        arguments = (*SCORE, f"shard={number}/3", f"run.name=s{number}", f"run.copy_to={s3.url}/runs")
        assert run("score", *arguments) == 0
    runs = sorted({name.split("/")[1] for name in s3.names()})
    assert len(runs) == 3
    shards = ",".join(f"{s3.url}/runs/{name}" for name in runs)
    assert run("merge", f"runs=[{shards}]", f"run.copy_to={s3.url}/merged", *SCORE[-3:]) == 0
    folder = newest("runs/merge")
    assert contents(folder) == expected
    assert json.loads((folder / "run.json").read_bytes())["merged"]["runs"] == shards.split(",")
    assert s3.get(f"merged/{folder.name}/metrics.json") == expected["metrics.json"]


@pytest.mark.slow
def test_a_checkpoint_and_data_in_s3_give_the_bytes_of_those_here(here, s3):
    expected = whole("eval", EVAL)
    for name in ("masks", "images", "net"):
        s3.put_folder(here / name, f"{name}/")
    assert run("eval", *given(EVAL, checkpoint=f"{s3.url}/net", **{"data.root": s3.url})) == 0
    assert contents(newest("runs/eval")) == expected


def test_images_of_an_archive_on_a_web_server_are_predicted(here, web):
    expected = whole("predict", PREDICT)
    root, url = web
    with zipfile.ZipFile(root / "all.zip", "w") as archive:
        for path in sorted((here / "images").iterdir()):
            archive.write(path, f"some/images/{path.name}")
    assert run("predict", *given(PREDICT, input=f"zip://some/images::{url}/all.zip")) == 0
    assert contents(newest("runs/predict")) == expected


def test_a_data_set_in_an_archive_gives_the_bytes_of_the_one_here(here, tmp_path):
    """Mutation seen to fail: the root left as it was given, so that every unpacked file lies outside of it."""
    expected = whole("eval", EVAL)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("images", "masks"):
            for path in sorted((here / name).iterdir()):
                archive.write(path, f"data/{name}/{path.name}")
    assert run("eval", *given(EVAL, **{"data.root": f"zip://data::{tmp_path}/all.zip"})) == 0
    assert contents(newest("runs/eval")) == expected


def test_a_data_set_that_changes_while_it_is_evaluated_is_refused(here, memory, monkeypatch, capsys):
    """After the check of every file, whose content the cache then no longer has."""
    for folder in ("images", "masks"):
        for path in sorted((here / folder).iterdir()):
            memory.put(f"{folder}/{path.name}", path.read_bytes())
    restore = evaluate.restore_cases

    def changed(*arguments, **options):
        memory.put("images/case00.png", (here / "images" / "case01.png").read_bytes())
        remove(cache_folder())
        return restore(*arguments, **options)

    monkeypatch.setattr(evaluate, "restore_cases", changed)
    assert run("eval", *given(EVAL, **{"data.root": memory.url})) == 2
    assert "images/case00.png: expected `object` to stay what it was when it was listed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_lost_connection_ends_with_3_and_the_run_goes_on(here, memory, capsys, caplog):
    for folder in ("predictions", "masks"):
        for path in sorted((here / folder).iterdir()):
            memory.put(f"{folder}/{path.name}", path.read_bytes())
    arguments = given(SCORE, references=f"{memory.url}/masks", predictions=f"{memory.url}/predictions")

    def break_off(name):
        if name.endswith("case07.png"):
            raise ConnectionError("reset by peer")

    memory.fault = break_off
    with caplog.at_level(logging.WARNING):
        assert run("score", *arguments, "run.name=lost") == 3
    assert "case07.png: can't be read or written, after 3 attempts (reset by peer)" in capsys.readouterr().err
    memory.fault = lambda name: None
    folder = newest("runs/score")
    assert run("score", *arguments, f"resume={folder}") == 0
    assert contents(folder) == whole("score", SCORE)


def test_a_url_that_can_not_be_used_leaves_no_run(here, capsys):
    before = set(Path("runs").glob("*/*"))
    assert run("score", *given(SCORE, references="ftp://host/masks")) == 2
    assert run("score", *SCORE, "run.copy_to=https://host/runs") == 2
    error = capsys.readouterr().err
    assert "a URL of s3, gs" in error
    assert "`run.copy_to` to be a URL that can be written" in error
    assert set(Path("runs").glob("*/*")) == before


def test_runs_in_s3_are_compared_with_their_pictures(here, s3):
    whole("score", SCORE)
    first = newest("runs/score").absolute()
    assert run("score", *SCORE, "run.name=other", "metrics.bootstrap=21") == 0
    second = newest("runs/score").absolute()
    for folder in (first, second):
        s3.put_folder(folder, f"runs/{folder.name}/")
    pages = []
    for places in ((str(first), str(second)), [f"{s3.url}/runs/{folder.name}" for folder in (first, second)]):
        assert run("compare", f"runs=[{','.join(places)}]", "metrics.bootstrap=20") == 0
        folder = newest("runs/compare")
        found = (folder / "compare.json").read_text().replace(str(first.parent), f"{s3.url}/runs")
        pages.append((found, (folder / "compare.html").read_text().count("image.webp")))
    assert pages[0] == pages[1]
    assert pages[0][1] > 0


def test_zarr_in_s3_gives_the_bytes_of_zarr_here(here, s3, tmp_path):
    """Images, masks and predictions, some of whose chunks are absent, as they are zeros."""
    for name in ("images", "masks", "predictions"):
        for path in sorted((here / name).iterdir())[:4]:
            pixels = np.asarray(Image.open(path))
            axes, chunks = "yxc"[: pixels.ndim], (16, 16, 3)[: pixels.ndim]
            write_zarr(tmp_path / name / f"{path.stem}.zarr", pixels, axes, chunks=chunks)
        s3.put_folder(tmp_path / name, f"{name}/")
    score = given(SCORE[:2] + SCORE[3:], predictions=f"{tmp_path}/predictions", references=f"{tmp_path}/masks")
    evaluate_ = given(EVAL, **{"data.root": str(tmp_path)})
    for command, arguments in (("score", score), ("eval", evaluate_)):
        expected = whole(command, arguments)
        there = [line.replace(str(tmp_path), s3.url) for line in arguments]
        assert run(command, *there) == 0
        assert contents(newest(f"runs/{command}")) == expected


@pytest.mark.slow
def test_a_coco_file_in_s3_gives_the_counts_of_the_one_here(s3, tmp_path, monkeypatch):
    """In worker processes too, each of which finds it in the cache."""
    monkeypatch.chdir(tmp_path)
    drawn = {name: draw_mask(seed) for seed, name in enumerate("ab")}
    (tmp_path / "ann.json").write_text(json.dumps(coco_content(drawn)))
    for name, mask in drawn.items():
        s3.put(f"predictions/{name}.npy", npy_bytes(np.roll(mask, 3, 1)))
        (tmp_path / "predictions").mkdir(exist_ok=True)
        np.save(tmp_path / "predictions" / f"{name}.npy", np.roll(mask, 3, 1))
    s3.put("ann.json", (tmp_path / "ann.json").read_bytes())
    options = (f"data.classes=[{','.join(NAMES)}]", "metrics.bootstrap=0", "report.html=false")
    for place, name, workers in ((str(tmp_path), "here", 0), (s3.url, "there", 2)):
        files = (f"references={place}/ann.json", f"predictions={place}/predictions")
        files = (*files, f"run.name={name}", f"workers={workers}")
        assert run("score", *files, *options) == 0
    here, there = sorted(Path("runs/score").iterdir(), key=lambda folder: folder.name.partition("_")[2])[:2]
    assert contents(here) == contents(there)


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_a_data_set_in_s3_is_read_by_index(here, s3):
    """As a training loop of a user's own does, which knows no limit of time."""
    for name in ("images", "masks"):
        s3.put_folder(here / name, f"{name}/")
    options = {"classes": ("a", "b", "c"), "ignore_index": 255}
    there, local = (build_dataset(FolderConfig(root=root, **options), split="all") for root in (s3.url, str(here)))
    for index in (0, 5):
        np.testing.assert_array_equal(there[index].image, local[index].image)
        np.testing.assert_array_equal(there[index].target, local[index].target)
    assert there.fingerprint() == local.fingerprint()
