"""Commands whose paths are URLs: the bytes of the same command on files of this machine."""

import json
import logging
import zipfile
from pathlib import Path

import pytest

from segmeter.evaluation import evaluate
from segmeter.files import remove
from segmeter.provenance import cache_folder
from tests.cli.sharded import EVAL, PREDICT, SCORE, contents, newest, run, whole

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
