"""Commands whose paths are URLs: the bytes of the same command on files of this machine."""

import json
import logging
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.data.config import FolderConfig
from segmeter.data.verification.splits import build_dataset
from segmeter.errors import RunError
from segmeter.evaluation import evaluate
from segmeter.files import remove
from segmeter.records import cache_folder
from segmeter.remote import stores
from tests.cli.sharded import EVAL, PREDICT, SCORE, contents, newest, run, whole
from tests.data.crafted import encoded, put, write_zarr
from tests.data.formats_written import NAMES, coco_content, draw_mask
from tests.data.volumes import save_volume
from tests.evaluation.masks import scoring

pytestmark = pytest.mark.usefixtures("in_here")


def given(arguments, **places):
    return [f"{key}={places[key]}" if (key := line.partition("=")[0]) in places else line for line in arguments]


@pytest.fixture(scope="module")
def expected(here):
    """What commands leave on files of this machine; each is run once."""

    @cache
    def left(command):
        return whole(command, {"score": SCORE, "eval": EVAL, "predict": PREDICT}[command])

    return left


def test_masks_in_s3_give_the_bytes_of_masks_here_and_no_secret_is_kept(here, expected, s3):
    for name in ("masks", "predictions", "images"):
        s3.put_folder(here / name, f"{name}/")
    places = {"references": "masks", "predictions": "predictions", "images": "images"}
    arguments = given(SCORE, **{key: f"{s3.url}/{name}" for key, name in places.items()})
    assert run("score", *arguments) == 0
    folder = newest("runs/score")
    assert contents(folder) == expected("score")
    record = json.loads((folder / "run.json").read_bytes())
    assert (record["references"], record["predictions"]) == (f"{s3.url}/masks", f"{s3.url}/predictions")
    texts = [path.read_text() for path in folder.iterdir() if path.suffix in (".json", ".yaml", ".txt")]
    assert len(texts) >= 5
    assert not [text for text in texts if "the-secret-of-the-test" in text or "AKIAOFTHETEST" in text]


def test_every_pair_whose_objects_changed_since_they_were_listed_is_named(memory):
    for name in ("references/a.png", "predictions/a.png", "references/b.png", "predictions/b.png"):
        memory.put(name, encoded(np.zeros((200, 200), np.uint8)))
    job = scoring(Path(memory.url))
    for name in "ab":
        memory.put(f"predictions/{name}.png", encoded(np.ones((200, 200), np.uint8)))
    problems = [line for pair in job.pairs for line in job.scorer()(pair)]
    assert [line.partition(": expected `object` to stay what it was")[0] for line in problems] == [
        f"{memory.url}/predictions/{name}.png" for name in "ab"
    ]


@pytest.mark.slow
def test_shards_copied_to_s3_are_merged_from_there(here, expected, s3):
    for number in (1, 2, 3):
        arguments = (*SCORE, f"shard={number}/3", f"run.name=s{number}", f"run.copy_to={s3.url}/runs")
        assert run("score", *arguments) == 0
    runs = sorted({name.split("/")[1] for name in s3.names()})
    assert len(runs) == 3
    shards = ",".join(f"{s3.url}/runs/{name}" for name in runs)
    assert run("merge", f"runs=[{shards}]", f"run.copy_to={s3.url}/merged", *SCORE[-3:]) == 0
    folder = newest("runs/merge")
    assert contents(folder) == expected("score")
    assert json.loads((folder / "run.json").read_bytes())["merged"]["runs"] == shards.split(",")
    assert s3.get(f"merged/{folder.name}/metrics.json") == expected("score")["metrics.json"]


@pytest.mark.slow
def test_a_checkpoint_and_data_in_s3_give_the_bytes_of_those_here(here, expected, s3):
    for name in ("masks", "images", "net"):
        s3.put_folder(here / name, f"{name}/")
    assert run("eval", *given(EVAL, checkpoint=f"{s3.url}/net", **{"data.root": s3.url})) == 0
    assert contents(newest("runs/eval")) == expected("eval")


def test_archives_here_and_on_a_web_server_give_the_bytes_of_the_folders_in_them(here, expected, web):
    root, url = web
    with zipfile.ZipFile(root / "all.zip", "w") as archive:
        for path in (path for folder in ("images", "masks") for path in (here / folder).iterdir()):
            archive.write(path, f"some/{path.parent.name}/{path.name}")
    assert run("predict", *given(PREDICT, input=f"zip://some/images::{url}/all.zip")) == 0
    assert contents(newest("runs/predict")) == expected("predict")
    assert run("eval", *given(EVAL, **{"data.root": f"zip://some::{root}/all.zip"})) == 0
    assert contents(newest("runs/eval")) == expected("eval")


def test_a_data_set_that_changes_while_it_is_evaluated_is_refused(here, memory, monkeypatch, capsys):
    """After the check of every file, whose content the cache then no longer has."""
    for folder in ("images", "masks"):
        memory.put_folder(here / folder, f"{folder}/")
    begin = evaluate.open_manifest

    def changed(*arguments, **options):
        memory.put("images/case00.png", (here / "images" / "case01.png").read_bytes())
        remove(cache_folder())
        return begin(*arguments, **options)

    monkeypatch.setattr(evaluate, "open_manifest", changed)
    assert run("eval", *given(EVAL, **{"data.root": memory.url})) == 2
    assert "images/case00.png: expected `object` to stay what it was when it was listed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_lost_connection_ends_with_3_and_the_run_goes_on(here, expected, memory, capsys, caplog):
    for folder in ("predictions", "masks"):
        memory.put_folder(here / folder, f"{folder}/")
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
    assert contents(folder) == expected("score")


def test_a_url_that_can_not_be_used_leaves_no_run(here, capsys):
    before = set(Path("runs").glob("*/*"))
    assert run("score", *given(SCORE, references="ftp://host/masks")) == 2
    assert run("score", *SCORE, "run.copy_to=https://host/runs") == 2
    error = capsys.readouterr().err
    assert "a URL of s3, gs" in error
    assert "`run.copy_to` to be a URL that can be written" in error
    assert set(Path("runs").glob("*/*")) == before


def test_runs_in_s3_are_compared_with_their_pictures(here, s3):
    assert run("score", *SCORE, "run.name=first") == 0
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


@pytest.mark.slow
def test_a_coco_file_in_s3_gives_the_counts_of_the_one_here(s3, tmp_path, monkeypatch):
    """In worker processes too, each of which finds it in the cache."""
    monkeypatch.chdir(tmp_path)
    drawn = {name: draw_mask(seed) for seed, name in enumerate("ab")}
    put(tmp_path / "ann.json", coco_content(drawn))
    for name, mask in drawn.items():
        save_volume(tmp_path / "predictions" / f"{name}.npy", np.roll(mask, 3, 1))
    s3.put_folder(tmp_path)
    options = (f"data.classes=[{','.join(NAMES)}]", "metrics.bootstrap=0", "report.html=false")
    for place, name, workers in ((str(tmp_path), "here", 0), (s3.url, "there", 2)):
        files = (f"references={place}/ann.json", f"predictions={place}/predictions", f"workers={workers}")
        assert run("score", *files, f"run.name={name}", *options) == 0
    here, there = sorted(Path("runs/score").iterdir(), key=lambda folder: folder.name.partition("_")[2])[:2]
    assert contents(here) == contents(there)


@pytest.mark.parametrize("form", ["png", "zarr"])
def test_a_data_set_in_s3_is_read_by_index(form, here, s3, tmp_path):
    """As a training loop of a user's own does, which knows no limit of time. Chunks of zeros are absent."""
    for path in (path for name in ("images", "masks") for path in (here / name).iterdir()):
        pixels, target = np.asarray(Image.open(path)), tmp_path / path.parent.name / f"{path.stem}.{form}"
        if form == "png":
            put(target, path.read_bytes())
        else:
            write_zarr(target, pixels, "yxc"[: pixels.ndim], chunks=(20, 20, 3)[: pixels.ndim])
    s3.put_folder(tmp_path)
    options = {"classes": ("a", "b", "c"), "ignore_index": 255}
    there, local = (build_dataset(FolderConfig(root=root, **options), split="all") for root in (s3.url, str(tmp_path)))
    for index in (0, 5):
        np.testing.assert_array_equal(there[index].image, local[index].image)
        np.testing.assert_array_equal(there[index].target, local[index].target)
    assert there.fingerprint() == local.fingerprint()


FAST = (*SCORE, "images=null", "metrics.measures=[]", "report.overlays=0", "report.worst=0")


@pytest.mark.parametrize("lost", ["metrics.json", "run.json"])
def test_a_run_that_could_not_be_copied_says_so_and_a_resume_copies_it(lost, memory, monkeypatch, capsys):
    write = stores.write_object

    def fail(url, source):
        if url.endswith(lost):
            raise RunError(f"{url}: can't be written.")
        write(url, source)

    with monkeypatch.context() as patch:
        patch.setattr(stores, "write_object", fail)
        assert run("score", *FAST, f"run.copy_to={memory.url}/runs") == 3
    folder = newest("runs/score")
    *_, cause, advice = capsys.readouterr().err.splitlines()
    assert f"/{lost}: can't be written." in cause
    assert advice == f"segmeter: run: the results in {folder} are whole, but not copied: copy it with resume={folder}."
    record = json.loads((folder / "run.json").read_bytes())
    assert record["state"].startswith("stopped: memory://")
    assert record["result"]
    assert run("score", f"resume={folder}") == 0
    assert json.loads((folder / "run.json").read_bytes())["state"] == "done"
    for name in ("metrics.json", "run.json"):
        assert memory.content(f"runs/{folder.name}/{name}") == (folder / name).read_bytes(), name
