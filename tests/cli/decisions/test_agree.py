"""`segmeter agree` as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from segmeter.cli.main import main
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.summary.agreement import Agreement
from segmeter.records import read_json
from tests.data.crafted import BINARY, put

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
