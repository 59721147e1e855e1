"""`segmeter merge` as a user types it: shards give the bytes of the run without shards, and nothing else is joined."""

import json
import shutil
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.commands.finished import take_pictures
from segmeter.evaluation.pieces import Piece
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import order_rows
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.chosen import Ranking, choose_cases
from segmeter.report.pictures.flatten import picture_path
from segmeter.report.pictures.layers import layers_path
from segmeter.report.pictures.worst import crops_path
from tests.cli.sharded import EVAL, PREDICT, SCORE, contents, done, latest, listed, make_checkpoint, run, run_shards
from tests.data.crafted import put
from tests.metrics.build import class_spec, random_rows

COUNTS = (2, 3)
SHOWN = ("report.overlays=4", "report.worst=2")
QUIET = ("report.overlays=0", "report.worst=0", "report.html=false")
FAST = (*SCORE, "images=null", "metrics.measures=[]", *QUIET)
pytestmark = pytest.mark.usefixtures("in_here")


def check_merged(command: str, whole: dict[str, bytes], folders: list[Path]) -> None:
    merged = done("merge", listed(folders), *SHOWN, f"run.name={command}{len(folders)}")
    assert contents(merged) == whole
    assert (merged / "report.html").is_file()
    assert latest("merge", "run.json")["merged"]["command"] == command


def test_the_shards_of_a_score_are_a_sweep_and_merged_they_are_the_run_to_the_byte(tmp_path: Path) -> None:
    """As docs/scale.md has them on a cluster. Mutation seen to fail: pictures of the first shard only."""
    expected = contents(done("score", *SCORE, "run.name=whole"))
    assert len(expected) >= 5 + 2
    assert run("score", "-m", *SCORE, f"hydra.sweep.dir={tmp_path}", "shard=3/3,1/3,2/3") == 0
    check_merged("score", expected, sorted(path.parent for path in tmp_path.glob("*/metrics.json")))


@pytest.mark.slow
def test_merged_shards_of_predictions_are_the_run_to_the_byte() -> None:
    expected = contents(done("predict", *PREDICT, "run.name=whole"))
    assert len(expected) >= 1 + 11 + 2
    for count in COUNTS:
        check_merged("predict", expected, run_shards("predict", count, *PREDICT))


@pytest.fixture(scope="module")
def evaluated(here: Path) -> dict[int, list[Path]]:
    """The folders of an evaluation by the number of its shards, 1 of the whole, with all that has to be added up."""
    options = [*EVAL, "metrics.calibration=true", "export.probs=true"]
    options += ["loss=cross_entropy", "loss.class_weights=[1,5,20]"]
    with chdir(here):
        found = {1: [done("eval", *options, "run.name=whole")]} | {
            count: run_shards("eval", count, *options) for count in COUNTS
        }
    return {count: [here / folder for folder in folders] for count, folders in found.items()}


@pytest.mark.slow
def test_merged_shards_of_an_evaluation_are_its_bytes_with_the_loss_of_one_batch(evaluated):
    """Mutations seen to fail: no terms of the loss from shards' tables; calibration summed in the shards' order."""
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
    assert "shard 2/3: 4 of 11 cases" in capsys.readouterr().err
    assert latest("score")["shard"] == "2/3"
    assert latest("score", "manifest.json")["identity"]["shard.cases"] == 11


@pytest.fixture(scope="module")
def thirds(here: Path) -> list[Path]:
    with chdir(here):
        return [path.absolute() for path in run_shards("score", 3, *FAST, "seed=3")]


def test_what_is_missing_is_named(thirds: list[Path], refused) -> None:
    before = {*Path("runs").glob("merge/*")}
    assert "all shards of 11 cases, got 7 cases, without shard 2/3" in refused("merge", listed(thirds[::2]))
    assert "different folders" in refused("merge", listed([thirds[0], thirds[0]]))
    assert {*Path("runs").glob("merge/*")} == before


@pytest.mark.parametrize(("change", "message"), [
    (["metrics.background=false"], "`metrics.background` to be the same in all runs, True as in 's3of3x'"),
    (["data.num_classes=4"], "`data.names` to be the same"),
    (["references=other"], "`data` to be the same"),
], ids=["background", "classes", "data"])  # fmt: skip
def test_other_runs_are_refused_with_the_difference(change, message, thirds, tmp_path, refused):
    shutil.copytree("masks", "other", dirs_exist_ok=True)
    put(Path("other/case01.png"), np.zeros((40, 40), np.uint8))
    shutil.copytree(thirds[0], tmp_path / "s3of3x")
    odd = done("score", *FAST, "seed=3", *change, "shard=2/3", "run.name=odd")
    said = refused("merge", listed([tmp_path / "s3of3x", odd, thirds[2]]))
    assert message in said.replace("\n", " ")


def test_unfinished_changed_and_foreign_folders_are_refused(thirds, tmp_path, refused):
    for name in ("unfinished", "changed"):
        shutil.copytree(thirds[0], tmp_path / name)
    (tmp_path / "foreign").mkdir()
    manifest = tmp_path / "unfinished" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"state": "done"', '"state": "running"'))
    with (tmp_path / "changed" / "cases.parquet").open("ab") as file:
        file.write(b"x")
    lines = refused("merge", listed([tmp_path / name for name in ("unfinished", "changed", "foreign")]))
    assert f"Finish it with segmeter score resume={tmp_path / 'unfinished'}" in lines
    assert "cases.parquet" in lines
    assert "to be as they were written" in lines
    assert "to be run folders" in lines


def test_folds_with_other_class_weights_are_refused(refused) -> None:
    """Mutation seen to fail: the scheme's name in the identity instead of its numbers."""
    folds, scheme = [], ["loss=cross_entropy", "loss.class_weights=inverse"]
    for number, pixels in enumerate([(900, 90, 10), (90, 900, 10)]):
        net = make_checkpoint(Path(f"counted{number}"), seed=number, class_pixels=pixels)
        folds.append(done("eval", *EVAL, *QUIET, *scheme, f"checkpoint={net}"))
    said = refused("merge", listed(folds), "kind=folds")
    assert "`loss.class_weights` to be the same in all runs, [0.37" in said.replace("\n", " ")


def test_folds_are_joined_when_asked_for_and_marked(refused, capsys: pytest.CaptureFixture[str]) -> None:
    make_checkpoint(Path("other_net"), seed=1)
    folds = []
    for number, net in enumerate(("net", "other_net")):
        root = Path(f"fold{number}")
        for path in sorted(Path("masks").iterdir())[number::2]:
            for kind in ("images", "masks"):
                (root / kind).mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(kind) / path.name, root / kind)
        folds.append(done("eval", *EVAL, *QUIET, f"checkpoint={net}", f"data.root={root}"))
    assert "files.checkpoint_sha256" in refused("merge", listed(folds))
    assert run("merge", listed(folds), "kind=folds", *QUIET) == 0
    assert "out of fold: the rows of 2 checkpoints" in capsys.readouterr().out
    summary = latest("merge")
    assert (summary["n_cases"], summary["merged"]["kind"]) == (11, "folds")
    alone = [json.loads((folder / "metrics.json").read_text())["confusion_matrix"] for folder in folds]
    assert summary["confusion_matrix"] == np.sum(alone, axis=0).tolist()
    shutil.copytree(folds[0], "again")
    assert "folds without a common case" in refused("merge", listed([folds[0], Path("again")]), "kind=folds")


@pytest.mark.parametrize(("line", "said"), [
    (["score", *SCORE, "shard=1/12"], "at most 11 shards"),
    (["score", *SCORE, "shard=half"], "to be NUMBER/COUNT"),
    (["eval", *EVAL, "inference.batch_size=8", "shard=1/7"], "batches of up to 8 images of one size"),
], ids=["cases", "no count", "batches"])  # fmt: skip
def test_more_shards_than_cases_or_batches_are_refused(line, said, refused):
    assert said in refused(*line)


@pytest.mark.slow
def test_a_case_in_two_runs_with_calibration_is_refused(evaluated, refused):
    said = refused("merge", listed([*evaluated[2], evaluated[3][0]]))
    assert "to share no case, as calibration adds up all pixels" in said


SPEC = class_spec(4)
METRICS = MetricsConfig()


def draw(folder: Path, names: set[str], *, crops: set[str] = frozenset()) -> None:
    """Pictures, layers and crops of cases, each with the name of its case in it."""
    drawn = [(name, picture_path(folder / "overlays", name)) for name in names]
    drawn += [(name, layers_path(folder, name) / "image.png") for name in names]
    for name, path in (*drawn, *((name, crops_path(folder, name) / "image.png") for name in crops)):
        put(path, name)


def piece(folder: Path, names: list[str], spec=SPEC) -> Piece:
    empty = {name: {} for name in ("identity", "shard", "inputs", "record")}
    return Piece(folder=folder, command="eval", cases=dict.fromkeys(names, ("1", "{}")), spec=spec, **empty)


def ranked(rows) -> Ranking:
    return Ranking.of(build_scoreboard(order_rows("test", rows, SPEC), SPEC, METRICS))


def draw_run(folder: Path, rows, config: ReportConfig) -> Piece:
    """A run, or a part of one, with what it would draw of its own cases."""
    draw(folder, choose_cases(ranked(rows), config), crops={*ranked(rows).worst[: config.worst]})
    return piece(folder, [row.case_id for row in rows])


def taken(folder: Path) -> dict[str, str]:
    """What each picture, layer and crop shows."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.png")}


@pytest.mark.parametrize(("count", "overlays"), [(1, 3), (2, -1), (2, 6), (5, 0), (5, 3)])
def test_they_are_those_of_the_run_without_parts(count: int, overlays: int, tmp_path: Path) -> None:
    """Mutation seen to fail: the worst of each class not asked for."""
    rows = random_rows(17, 4, seed=count)
    config = ReportConfig(overlays=overlays, worst=2)
    pieces = [draw_run(tmp_path / f"shard{number}", rows[number::count], config) for number in range(count)]
    merged, whole = tmp_path / "merged", tmp_path / "whole"
    merged.mkdir()
    write_cases(merged, rows, SPEC)
    take_pictures(pieces, config, METRICS, merged)
    draw_run(whole, rows, config)
    assert taken(merged) == taken(whole)
    assert {path.name for path in (merged / "worst").iterdir()} == {*ranked(rows).worst[:2]}
    assert (merged / "worst.csv").is_file()


def test_without_scores_the_sample_alone_is_drawn(tmp_path: Path) -> None:
    """Of predictions, none of which is worst."""
    names = [f"case{number}" for number in range(9)]
    config = ReportConfig(overlays=4, worst=3)
    chosen = choose_cases(Ranking(case_ids=names), config.replace(worst=0))
    pieces = [piece(tmp_path / str(number), names[number::2], spec=None) for number in range(2)]
    for each in pieces:
        draw(each.folder, set(each.cases))
    (tmp_path / "merged").mkdir()
    take_pictures(pieces, config, None, tmp_path / "merged")
    assert {path.stem for path in (tmp_path / "merged" / "overlays").iterdir()} == chosen
    assert len(chosen) == 4
