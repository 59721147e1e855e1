"""`segmeter plan`, `agree` and `suspects`, from the command line to the files of their runs."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from PIL import Image

from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.summary.agreement import Agreement
from segmeter.records import read_json
from tests.cli.commands.test_finished import make_run as make_scored
from tests.cli.sharded import done, latest, newest, run
from tests.data.crafted import BINARY, put
from tests.evaluation.decisions.test_suspects import NAMES, make_data, make_predicted, make_run

PLAN = ["plan", "metrics.bootstrap=1000"]
AGREE = ["agree", "data.task=binary", "data.classes=[ground,cell]", "metrics.bootstrap=0"]
pytestmark = pytest.mark.usefixtures("in_tmp")


def test_a_run_is_planned_for_and_its_files_are_written(capsys):
    make_scored(Path("pilot"), wrong=2, cases=24)
    folder, printed = done(*PLAN, "run=pilot", "width=0.02"), capsys.readouterr().out
    assert "95 % interval of width 0.02: cases needed" in printed
    written = latest("plan", "plan.json")
    assert f"{written['rows'][0]['width']['units']:,}" in printed
    ElementTree.fromstring((folder / "plan.svg").read_text())
    drawn = np.asarray(Image.open(folder / "plan.png"))
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) > 10
    page = (folder / "report.html").read_text()
    assert "What a statistician would object" in page
    assert "<polyline" in page
    assert run("schema", "plan.json") == 0
    assert {"rows", "width", "detect"} <= json.loads(capsys.readouterr().out)["properties"].keys()


def put_readers(root: Path, shares: dict[str, float], cases: int = 9) -> None:
    rng = np.random.default_rng(0)
    for number in range(cases):
        truth = rng.random((12, 12)) < 0.5
        for name, share in shares.items():
            put(root / name / f"c{number}.png", (truth ^ (rng.random(truth.shape) < share)).astype(np.uint8))


def test_four_readers_and_a_model_are_compared(capsys):
    put_readers(Path(), {"ann": 0.02, "ben": 0.02, "cas": 0.02, "dee<b>": 0.3, "net": 0.01})
    folder = done(*AGREE, "folders=[ann,ben,cas,'dee<b>',net]", "models=[net]", "metrics.bootstrap=200")
    printed = capsys.readouterr().out
    assert "stands apart: dee<b>" in printed
    assert any(words in printed for words in ("the human ceiling", "readers from each other", "closer"))
    result = read_json(folder / "agree.json", Agreement)
    assert (result["apart"], result["models"]) == (["dee<b>"], ["net"])
    page = (folder / "agree.html").read_text()
    assert "Stands apart: dee&lt;b&gt;" in page
    assert "Agreement is not accuracy" in page
    assert len(list((folder / "consensus" / "majority" / "labels").iterdir())) == 9
    assert latest("agree", "run.json")["state"] == "done"


def test_runs_are_readers_and_bring_their_classes():
    for name in ("one", "two"):
        put_readers(Path(name, "predictions"), {"labels": 0.1}, cases=3)
        Path(name, "run.json").write_text('{"command": "eval", "state": "done"}')
        write_cases(Path(name), [CaseRow(case_id="c0", height=12, width=12, counts=np.diag([72, 72]))], BINARY)
    assert run("agree", "runs=[one,two]", "metrics.bootstrap=0", "consensus=[]") == 0
    result = latest("agree", "agree.json")
    assert result["headline"] == "iou/cell"
    assert result["scores"]["iou/cell"]["matrix"]["one"]["two"]["mean"] == 1


def evaluation(root: Path, split: str = "test") -> Path:
    """A run of eval with a configuration that names its data."""
    folder = make_run(root / "evaluated", make_data(root / "data"))
    (root / "data" / "test.txt").write_text("\n".join(NAMES))
    values = {"name": "folder", "root": str(root / "data"), "lists": ".", "split": split}
    values |= {"task": "binary", "classes": ["ground", "cell"], "in_channels": 3}
    config = {"checkpoint": "x", "data": values, "loss": {"name": "focal"}}
    config |= {name: {} for name in ("inference", "export", "postprocess", "metrics", "report")}
    (folder / "config.yaml").write_text(yaml.safe_dump(config | {"launch": {"name": "local"}}))
    return folder


def test_suspects_are_listed_and_drawn(capsys):
    assert run("suspects", f"runs=[{evaluation(Path.cwd())}]") == 0
    assert "missing cell" in capsys.readouterr().out
    folder = newest("runs/suspects")
    assert (folder / "crops" / "1.webp").is_file()
    page = (folder / "suspects.html").read_text()
    for words in ("missing cell in a", ">copy ids</button>", "not a verdict"):
        assert words in page
    assert latest("suspects", "run.json")["state"] == "done"


def test_images_to_label_next_have_a_page():
    make_predicted(Path("one"), {"x": 0.5, "y": 0.1})
    make_predicted(Path("two"), {"x": 0.5, "y": 0.9})
    for name in ("one", "two"):
        Path(name, "run.json").write_text('{"command": "predict", "state": "done"}')
        Path(name, "config.yaml").write_text("shard: null")
    assert run("suspects", "runs=[one,two]", "order=label_next") == 0
    assert latest("suspects", "label_next.json")["images"][0]["case_id"] == "y"
    assert "not a random sample" in (newest("runs/suspects") / "label_next.html").read_text()


REFUSED = {
    "no pilot": ([*PLAN, "width=0.05"], "config: expected `runs` to be given, or else sd"),
    "no aim": ([*PLAN, "sd=0.1"], "config: expected `width` to be given, or else detect"),
    "one run": ([*PLAN, "run=pilot", "detect=0.01"], "`runs` to be [BASE,NEW] for detect"),
    "two pilots": ([*PLAN, "run=pilot", "sd=0.1", "width=0.05"], "`runs` to be given, or else sd"),
    "no width": ([*PLAN, "run=pilot", "width=0"], "`width`"),
    "no run": ([*PLAN, "run=gone", "width=0.05"], "gone"),
    "counted": ([*AGREE, "folders=[a,b]", "data.invalid=count"], "every value of a reader is a class"),
    "sides": ([*AGREE, "folders=[a,b]", "data.instances=references"], "readers have no sides"),
    "a grid": ([*AGREE, "folders=[a,b]", "data.resample=nearest"], "no reader's grid is the reference"),
    "one reader": ([*AGREE, "folders=[a]"], "two readers or more"),
    "trained on": (["suspects", "runs=[trained/evaluated]"], "their model never saw"),
    "of no run": (["suspects", "runs=[.]"], "to be runs of eval"),
    "of score": (["suspects", "runs=[scored]"], "scored, of score. Give the folder"),
    "of another version": (["suspects", "runs=[older]"], "to have a config.yaml that this version can read"),
    "unfinished": (["suspects", "runs=[half]", "order=label_next"], "half (failed). Finish it with resume="),
    "a shard": (["suspects", "runs=[part]", "order=label_next"], "part, a shard. Merge them first."),
    "of no predict": (["suspects", "runs=[.]", "order=label_next"], "(without run.json or config.yaml)"),
}


@pytest.mark.parametrize(("line", "told"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_decided_from_is_refused_in_one_line_and_leaves_nothing(line, told, refused):
    make_scored(Path("pilot"), wrong=2)
    for folder, command in (("scored", "score"), ("older", "eval"), ("half", "predict"), ("part", "predict")):
        make_predicted(Path(folder), {"x": 0.5})
        state = "failed" if folder == "half" else "done"
        Path(folder, "run.json").write_text(f'{{"command": "{command}", "state": "{state}"}}')
        Path(folder, "config.yaml").write_text("shard: 1/2")
    if "trained" in line[1]:
        Path("trained").mkdir()
        evaluation(Path("trained").absolute(), "train")
    (said,) = (text for text in refused(*line).splitlines() if text.startswith("segmeter: "))
    assert told in said
    assert not Path("runs").exists()
