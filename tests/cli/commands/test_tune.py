"""`segmeter tune`: what is chosen can be used, and probabilities are kept only where there is room."""

import json
from pathlib import Path

import pytest

from segmeter.inference.predictor import Predictor
from tests.cli.sharded import done, latest, newest, run

pytestmark = pytest.mark.usefixtures("in_here")
OWN = ["checkpoint=net", "data.root=.", "device=cpu", "data.split=train", "run.name=x"]


def test_a_tuned_setting_is_written_named_and_usable(capsys: pytest.CaptureFixture[str]) -> None:
    tried = ["over=[postprocess.min_size=0|8|64]", "metrics.bootstrap=1000"]
    folder, result = done("tune", *OWN, *tried, "inference.flips=true"), latest("tune", "tune.json")
    assert [one["values"]["postprocess.min_size"] for one in result["settings"]] == ["0", "8", "64"]
    assert {"tune.png", "tune.svg", "tune.parquet", "report.html"} <= {path.name for path in folder.iterdir()}
    card = json.loads(Path("net/tuned.json").read_text())
    assert Path(card["tuned"]) == (folder / "tuned.yaml").absolute()
    capsys.readouterr()
    quick = ["metrics.bootstrap=0", "report.overlays=0", "report.worst=0", "report.html=false"]
    assert run("eval", *OWN, f"postprocess={folder}/tuned.yaml", *quick, "export.probs=true") == 0
    assert "cases were used to choose" in capsys.readouterr().err
    score = result["settings"][result["chosen"]]["score"]
    assert latest("eval")["dataset"]["mean_iou"] == pytest.approx(score, rel=1e-12)
    assert run("tune", *OWN, f"probs={newest('runs/eval')}", *tried) == 0
    assert latest("tune", "tune.json")["settings"] == result["settings"]
    assert not (done("tune", *OWN, f"probs={folder}", *tried) / "predictions").exists()  # nothing is kept twice
    rounded = latest("tune", "tune.json")["settings"]
    for one, exact in zip(rounded, result["settings"], strict=True):  # float16 lets nearly equal classes change places
        assert one["score"] == pytest.approx(exact["score"], abs=1e-3)


def test_no_probabilities_are_computed_that_would_not_be_kept(monkeypatch, capsys):
    predict, asked = Predictor.predict, list[bool]()

    def noted(self, samples, *, probs):
        asked.append(probs)
        return predict(self, samples, probs=probs)

    monkeypatch.setattr(Predictor, "predict", noted)
    tried = ["over=[postprocess.min_size=0|8]", "metrics.bootstrap=1000"]
    assert run("tune", *OWN, *tried, "keep_gb=1e-9") == 0
    assert "none are kept" in capsys.readouterr().err
    assert run("tune", *OWN, *tried) == 0
    assert asked == [False, True]


@pytest.mark.parametrize(("more", "said"), [
    (["data.split=test", "over=[postprocess.min_size=0|8]"], "data.split"),
    (["over=[threshold=0.2:0.8:0.1]"], "no threshold"),
    ([], "over"),
], ids=["test split", "threshold", "nothing"])  # fmt: skip
def test_the_test_split_and_unknown_settings_are_refused(more, said, refused):
    (line,) = refused("tune", *OWN, *more).splitlines()
    assert said in line
