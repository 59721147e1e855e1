"""`segmeter plan`, `agree` and `suspects`, from the command line to the files of their runs."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from PIL import Image

from segmeter.cli.main import main
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.summary.agreement import Agreement
from segmeter.records import read_json
from tests.cli.commands.test_finished import make_run as make_scored
from tests.data.crafted import BINARY, put
from tests.evaluation.decisions.test_label_next import make_run as make_prediction
from tests.evaluation.decisions.test_suspects import NAMES, make_data, make_run


def plan(*arguments: str) -> Path:
    main(["plan", *arguments, "metrics.bootstrap=1000", "run.root=out", "run.name=x"])
    return max(Path("out/plan").iterdir())


def test_a_run_is_planned_for_and_its_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_scored(tmp_path / "pilot", wrong=2, cases=24)
    folder = plan("run=pilot", "width=0.02")
    printed = capsys.readouterr().out
    assert "95 % interval of width 0.02: cases needed" in printed
    written = json.loads((folder / "plan.json").read_text())
    assert f"{written['rows'][0]['width']['units']:,}" in printed
    ElementTree.fromstring((folder / "plan.svg").read_text())
    drawn = np.asarray(Image.open(folder / "plan.png"))
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) > 10
    page = (folder / "report.html").read_text()
    assert "What a statistician would object" in page
    assert "<polyline" in page


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["width=0.05"], "config: expected `runs` to be given, or else sd"),
        (["sd=0.1"], "config: expected `width` to be given, or else detect"),
        (["run=pilot", "detect=0.01"], "`runs` to be [BASE,NEW] for detect"),
        (["run=pilot", "sd=0.1", "width=0.05"], "`runs` to be given, or else sd"),
        (["run=pilot", "width=0"], "`width`"),
        (["run=gone", "width=0.05"], "gone"),
    ],
    ids=["no pilot", "no aim", "one run", "two pilots", "no width", "no run"],
)
def test_a_plan_without_pilot_or_aim_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_scored(tmp_path / "pilot", wrong=2)
    with pytest.raises(SystemExit) as ended:
        plan(*arguments)
    assert ended.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert line in said
    assert not Path("out").exists()


def test_the_schema_of_the_file_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["schema", "plan.json"])
    schema = json.loads(capsys.readouterr().out)
    assert {"rows", "width", "detect"} <= schema["properties"].keys()


CODE = "import sys; from segmeter.cli.main import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"


def put_readers(root: Path, shares: dict[str, float], cases: int = 9) -> None:
    rng = np.random.default_rng(0)
    for number in range(cases):
        truth = rng.random((12, 12)) < 0.5
        for name, share in shares.items():
            put(root / name / f"c{number}.png", (truth ^ (rng.random(truth.shape) < share)).astype(np.uint8))


def test_four_readers_and_a_model_are_compared_without_torch(tmp_path: Path) -> None:
    put_readers(tmp_path, {"ann": 0.02, "ben": 0.02, "cas": 0.02, "dee<b>": 0.3, "net": 0.01})
    folders = "folders=[ann,ben,cas,'dee<b>',net]"
    options = ["models=[net]", "data.task=binary", "data.classes=[ground,cell]", "metrics.bootstrap=200"]
    command = [sys.executable, "-W", "error", "-c", CODE, "agree", folders, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "stands apart: dee<b>" in done.stdout
    assert "the human ceiling" in done.stdout or "readers from each other" in done.stdout or "closer" in done.stdout
    (folder,) = (tmp_path / "runs" / "agree").iterdir()
    result = read_json(folder / "agree.json", Agreement)
    assert (result["apart"], result["models"]) == (["dee<b>"], ["net"])
    page = (folder / "agree.html").read_text()
    assert "Stands apart: dee&lt;b&gt;" in page
    assert "Agreement is not accuracy" in page
    assert len(list((folder / "consensus" / "majority" / "labels").iterdir())) == 9
    assert json.loads((folder / "run.json").read_text())["state"] == "done"


def test_runs_bring_their_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        put_readers(tmp_path / name / "predictions", {"labels": 0.1}, cases=3)
        row = CaseRow(case_id="c0", height=12, width=12, counts=np.array([[72, 0], [0, 72]]))
        write_cases(tmp_path / name, [row], BINARY)
    main(["agree", "runs=[one,two]", "metrics.bootstrap=0", "consensus=[]"])
    (folder,) = (tmp_path / "runs" / "agree").iterdir()
    result = json.loads((folder / "agree.json").read_text())
    assert result["headline"] == "iou/cell"
    assert result["scores"]["iou/cell"]["matrix"]["one"]["two"]["mean"] == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("data.invalid=count", "every value of a reader is a class"),
        ("data.instances=references", "readers have no sides"),
        ("data.resample=nearest", "no reader's grid is the reference"),
        ("folders=[a]", "two readers or more"),
    ],
)
def test_what_has_no_meaning_for_readers_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["agree", "folders=[a,b]", "data.task=binary", "data.classes=[ground,cell]", line])
    assert left.value.code == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_masks_of_0_and_255_are_refused_without_a_label_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """255 also stands for pixels without a majority; read as such, every score was undefined and nobody apart."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("ann", "ben"):
        put(tmp_path / name / "a.png", (rng.random((12, 12)) < 0.5).astype(np.uint8) * 255)
    line = ["agree", "folders=[ann,ben]", "data.task=binary", "data.classes=[ground,cell]", "metrics.bootstrap=0"]
    with pytest.raises(SystemExit) as stopped:
        main(line)
    assert stopped.value.code == 2
    assert not (tmp_path / "runs").exists()
    main([*line, "data.label_map={0: 0, 255: 1}"])
    (folder,) = (tmp_path / "runs" / "agree").iterdir()
    assert json.loads((folder / "agree.json").read_text())["scores"]["iou/cell"]["matrix"]["ann"]["ben"]["mean"] > 0


CODE = "import sys; from segmeter.cli.main import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"


def evaluation(root: Path, split: str = "test") -> Path:
    """A run of eval with a configuration that names its data."""
    run = make_run(root / "evaluated", make_data(root / "data"))
    (root / "data" / "test.txt").write_text("\n".join(NAMES))
    values = {"name": "folder", "root": str(root / "data"), "lists": ".", "split": split}
    values |= {"task": "binary", "classes": ["ground", "cell"], "in_channels": 3}
    config = {"checkpoint": "x", "data": values, "loss": {"name": "focal"}}
    config |= {name: {} for name in ("inference", "export", "postprocess", "metrics", "report")}
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"launch": {"name": "local"}}))
    return run


def test_suspects_are_listed_and_drawn(tmp_path: Path) -> None:
    run = evaluation(tmp_path)
    command = [sys.executable, "-W", "error", "-c", CODE, "suspects", f"runs=[{run}]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "missing cell" in done.stdout
    (folder,) = (tmp_path / "runs" / "suspects").iterdir()
    assert (folder / "crops" / "1.webp").is_file()
    page = (folder / "suspects.html").read_text()
    assert "missing cell in a" in page
    assert ">copy ids</button>" in page
    assert "not a verdict" in page
    assert json.loads((folder / "run.json").read_text())["state"] == "done"


def test_a_run_on_its_training_cases_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scored").mkdir()
    (tmp_path / "scored" / "run.json").write_text('{"command": "score", "state": "done"}')
    for runs, told in (
        (evaluation(tmp_path, "train"), "their model never saw"),
        (tmp_path, "to be runs of eval"),
        (tmp_path / "scored", "scored, of score. Give the folder"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["suspects", f"runs=[{runs}]"])
        assert left.value.code == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_images_to_label_next_have_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_prediction(tmp_path / "one", {"x": 0.5, "y": 0.1})
    make_prediction(tmp_path / "two", {"x": 0.5, "y": 0.9})
    main(["suspects", "runs=[one,two]", "order=label_next"])
    (folder,) = (tmp_path / "runs" / "suspects").iterdir()
    assert json.loads((folder / "label_next.json").read_text())["images"][0]["case_id"] == "y"
    assert np.char.find((folder / "label_next.html").read_text(), "not a random sample") > 0
