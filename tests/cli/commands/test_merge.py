"""`segmeter merge` as a user types it: shards give the bytes of the run without shards, and nothing else is joined."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.sharded import COUNTS, EVAL, PREDICT, SCORE, contents, make_checkpoint, newest, run, run_shards
from tests.data.crafted import put

COMMANDS = {"score": SCORE, "predict": PREDICT}
SHOWN = ("report.overlays=4", "report.worst=2")
QUIET = ("report.overlays=0", "report.worst=0", "report.html=false")
FAST = (*SCORE, "images=null", "metrics.measures=[]", *QUIET)
pytestmark = pytest.mark.usefixtures("in_here")


def listed(folders: list[Path]) -> str:
    return f"runs=[{','.join(map(str, folders))}]"


def check_merged(command: str, whole: dict[str, bytes], folders: list[Path]) -> None:
    assert run("merge", listed(folders), *SHOWN, f"run.name={command}{len(folders)}") == 0
    merged = newest("runs/merge")
    assert contents(merged) == whole
    assert (merged / "report.html").is_file()
    assert json.loads((merged / "run.json").read_text())["merged"]["command"] == command


@pytest.mark.parametrize("command", ["score", pytest.param("predict", marks=pytest.mark.slow)])
def test_merged_shards_are_the_run_without_shards_to_the_byte(command: str) -> None:
    """Mutation seen to fail: pictures of the first shard only."""
    arguments = COMMANDS[command]
    assert run(command, *arguments, "run.name=whole") == 0
    whole = contents(newest(f"runs/{command}"))
    assert len(whole) >= {"score": 5 + 2, "predict": 1 + 11 + 2}[command]
    for count in (3,) if command == "score" else COUNTS:
        check_merged(command, whole, run_shards(command, count, *arguments))


@pytest.fixture(scope="module")
def evaluated(here: Path) -> dict[int, list[Path]]:
    """The folders of an evaluation by the number of its shards, 1 of the whole, with all that has to be added up."""
    options = [*EVAL, "metrics.calibration=true", "export.probs=true"]
    options += ["loss=cross_entropy", "loss.class_weights=[1,5,20]"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert run("eval", *options, "run.name=whole") == 0
        found = {1: [newest("runs/eval")]} | {count: run_shards("eval", count, *options) for count in COUNTS}
    return {count: [here / folder for folder in folders] for count, folders in found.items()}


@pytest.mark.slow
def test_merged_shards_of_an_evaluation_are_its_bytes_with_the_loss_of_one_batch(evaluated):
    """Mutations seen to fail: the terms of the loss not read from the shards' tables; sums of the images for the
    calibration in float64, in the order of the shards.
    """
    whole = contents(evaluated[1][0])
    assert len(whole) >= 5 + 2 * 11 + 2
    assert "calibration.npz" in whole
    summary = json.loads(whole["metrics.json"])
    assert summary["calibration"]["n"] > 10_000
    loss = summary["loss"]
    assert abs(loss["dataset"] - loss["mean"]) > 1e-5 * loss["mean"]  # the two are told apart
    for count in COUNTS:
        check_merged("eval", whole, evaluated[count])


def test_a_shard_is_marked_and_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("score", *FAST, "shard=2/3") == 0
    folder = newest("runs/score")
    assert "shard 2/3: 4 of 11 cases" in capsys.readouterr().err
    assert json.loads((folder / "metrics.json").read_text())["shard"] == "2/3"
    assert json.loads((folder / "manifest.json").read_text())["identity"]["shard.cases"] == 11


@pytest.fixture(scope="module")
def thirds(here: Path) -> list[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        return [path.absolute() for path in run_shards("score", 3, *FAST, "seed=3")]


def test_what_is_missing_is_named(thirds: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    before = set(Path("runs/merge").glob("*")) if Path("runs/merge").is_dir() else set()
    assert run("merge", listed(thirds[:1] + thirds[2:])) == 2
    assert "all shards of 11 cases, got 7 cases, without shard 2/3" in capsys.readouterr().err
    assert run("merge", listed([newest("runs/score"), newest("runs/score")])) == 2
    assert "different folders" in capsys.readouterr().err
    assert {*Path("runs").glob("merge/*")} == before


@pytest.mark.parametrize(("change", "message"), [
    (["metrics.background=false"], "`metrics.background` to be the same in all runs, True as in 's3of3x'"),
    (["data.num_classes=4"], "`data.names` to be the same"),
    (["references=other"], "`data` to be the same"),
], ids=["background", "classes", "data"])  # fmt: skip
def test_other_runs_are_refused_with_the_difference(change, message, thirds, tmp_path, capsys):
    if "references=other" in change and not Path("other").exists():
        shutil.copytree("masks", "other")
        put(Path("other/case01.png"), np.zeros((40, 40), np.uint8))
    shutil.copytree(thirds[0], tmp_path / "s3of3x")
    assert run("score", *FAST, "seed=3", *change, "shard=2/3", "run.name=odd") == 0
    odd = newest("runs/score")
    capsys.readouterr()
    assert run("merge", listed([tmp_path / "s3of3x", odd, thirds[2]])) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_unfinished_changed_and_foreign_folders_are_refused(thirds, tmp_path, capsys):
    for name in ("unfinished", "changed", "edited"):
        shutil.copytree(thirds[0], tmp_path / name)
    (tmp_path / "foreign").mkdir()
    manifest = tmp_path / "unfinished" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"state": "done"', '"state": "running"'))
    with (tmp_path / "changed" / "cases.parquet").open("ab") as file:
        file.write(b"x")
    (tmp_path / "edited" / "config.yaml").write_text("metrics: {}\n")
    assert run("merge", listed([tmp_path / name for name in ("unfinished", "changed", "edited", "foreign")])) == 2
    lines = capsys.readouterr().err
    assert f"Finish it with segmeter score resume={tmp_path / 'unfinished'}" in lines
    assert "cases.parquet" in lines
    assert "to be as they were written" in lines
    assert "config.yaml" in lines
    assert "to be run folders" in lines


def test_folds_with_other_class_weights_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Mutation seen to fail: the scheme's name in the identity instead of its numbers."""
    folds, scheme = [], ["loss=cross_entropy", "loss.class_weights=inverse"]
    for number, pixels in enumerate([(900, 90, 10), (90, 900, 10)]):
        net = make_checkpoint(Path(f"counted{number}"), seed=number, class_pixels=pixels)
        assert run("eval", *EVAL, *QUIET, *scheme, f"checkpoint={net}") == 0
        folds.append(newest("runs/eval"))
    capsys.readouterr()
    assert run("merge", listed(folds), "kind=folds") == 2
    assert "`loss.class_weights` to be the same in all runs, [0.37" in capsys.readouterr().err.replace("\n", " ")


def test_folds_are_joined_when_asked_for_and_marked(capsys: pytest.CaptureFixture[str]) -> None:
    make_checkpoint(Path("other_net"), seed=1)
    folds = []
    for number, net in enumerate(("net", "other_net")):
        root = Path(f"fold{number}")
        for path in sorted(Path("masks").iterdir())[number::2]:
            for kind in ("images", "masks"):
                (root / kind).mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(kind) / path.name, root / kind)
        assert run("eval", *EVAL, *QUIET, f"checkpoint={net}", f"data.root={root}") == 0
        folds.append(newest("runs/eval"))
    assert run("merge", listed(folds)) == 2
    assert "files.checkpoint_sha256" in capsys.readouterr().err
    assert run("merge", listed(folds), "kind=folds", *QUIET) == 0
    assert "out of fold: the rows of 2 checkpoints" in capsys.readouterr().out
    summary = json.loads((newest("runs/merge") / "metrics.json").read_text())
    assert (summary["n_cases"], summary["merged"]["kind"]) == (11, "folds")
    alone = [json.loads((folder / "metrics.json").read_text())["confusion_matrix"] for folder in folds]
    added = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(*alone, strict=True)]
    assert summary["confusion_matrix"] == added
    shutil.copytree(folds[0], "again")
    assert run("merge", listed([folds[0], Path("again")]), "kind=folds") == 2
    assert "folds without a common case" in capsys.readouterr().err


def test_more_shards_than_cases_or_batches_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("score", *SCORE, "shard=1/12") == 2
    assert "at most 11 shards" in capsys.readouterr().err
    assert run("eval", *EVAL, "inference.batch_size=8", "shard=1/7") == 2
    assert "batches of up to 8 images of one size" in capsys.readouterr().err
    for text in ("0/3", "4/3", "half"):
        assert run("score", *SCORE, f"shard={text}") == 2
        assert "to be NUMBER/COUNT" in capsys.readouterr().err


@pytest.mark.slow
def test_a_case_in_two_runs_with_calibration_is_refused(evaluated, capsys):
    assert run("merge", listed([*evaluated[2], evaluated[3][0]])) == 2
    assert "to share no case, as calibration adds up all pixels" in capsys.readouterr().err
