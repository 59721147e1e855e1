"""Every number of history.jsonl has its curve, its best value, and an axis with a name."""

import json

import numpy as np
import pytest
from PIL import Image

from segmeter.files import write_json
from segmeter.report.config import ReportConfig
from segmeter.report.page.training import MOST_POINTS, training_values

SPEED = {"images_per_second": 8.0, "peak_memory_mb": 900.0}
HISTORY = [
    {"step": 5, "epoch": 0.5, "loss": 2.0, "lr": 0.1, "stages": {"data": 0.1, "step": 0.9}, "seconds": 1.0, **SPEED},
    {"step": 5, "epoch": 0.5, "val": {"loss": 1.5, "mean_iou": 0.5, "iou/car": 0.6}, "best": True, "seconds": 1.5},
    {"step": 10, "epoch": 1.0, "loss": 1.0, "lr": 0.05, "seconds": 2.0, **SPEED},
    {"step": 10, "epoch": 1.0, "val": {"loss": 1.7, "mean_iou": 0.4, "iou/car": None}, "best": False, "seconds": 2.5},
]


def values_of(tmp_path, history=HISTORY, config=None):
    found = training_values(tmp_path, history, config or ReportConfig())
    curves = json.loads(str(found["curves"]))
    return found, {chart["title"]: chart for chart in curves["charts"]}, curves["best"]


def test_every_number_has_its_place(tmp_path):
    found, charts, best = values_of(tmp_path)
    assert found["cards"][0] == {"name": "mean IoU", "value": "0.500", "under": "best, at step 5"}
    assert found["cards"][1] == {"name": "steps", "value": "10", "under": "1 epochs, 0.0 minutes"}
    rest = ["learning rate", "throughput", "peak memory", "time by stage"]
    assert list(charts) == ["scores of the validation", "loss", "IoU by class", *rest]
    training, validation = charts["loss"]["lines"]
    assert (training["name"], training["best"]) == ("training", 1)
    assert (training["step"], training["values"]) == ([5, 10], [2, 1])
    assert (validation["name"], validation["best"]) == ("validation", 0)  # the lowest loss
    (scores,) = charts["scores of the validation"]["lines"]
    assert (scores["name"], scores["best"], scores["seconds"]) == ("mean IoU", 0, [1.5, 2.5])
    assert charts["IoU by class"]["lines"][0]["values"] == [0.6, None]
    assert [line["name"] for line in charts["time by stage"]["lines"]] == ["data", "step"]
    assert charts["throughput"]["axis"] == "images per second"
    assert best == 5


def test_the_first_batch_is_embedded_or_linked(tmp_path):
    assert values_of(tmp_path)[0]["first_batch"] is None
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "first_batch.png")
    assert values_of(tmp_path)[0]["first_batch"].startswith("data:image/webp;base64,")
    assert values_of(tmp_path, config=ReportConfig(pictures="link"))[0]["first_batch"] == "first_batch.png"


@pytest.mark.parametrize("history", [[], [{"step": 0, "loss": None}], [{"loss": float("nan")}]])
def test_a_history_without_numbers_has_no_curves(tmp_path, history):
    assert values_of(tmp_path, history)[1] == {}


def test_long_histories_keep_their_ends_and_their_best(tmp_path):
    history = [{"step": step, "loss": 1.0 if step != 4321 else 0.25} for step in range(10_000)]
    (line,) = values_of(tmp_path, history)[1]["loss"]["lines"]
    assert len(line["values"]) <= MOST_POINTS + 2
    assert (line["step"][0], line["step"][-1]) == (0, 9999)
    assert (line["values"][line["best"]], line["step"][line["best"]]) == (0.25, 4321)


def test_pictures_of_validations_are_kept_by_step_within_the_limit(tmp_path):
    for step in range(0, 50, 10):
        place = tmp_path / "validation" / f"step-{step:08}"
        place.mkdir(parents=True)
        noise = np.random.default_rng(step).integers(0, 255, (50, 80, 3)).astype(np.uint8)
        for case in ("a", "b"):
            Image.fromarray(noise).save(place / f"{case}.png")
    found = values_of(tmp_path)[0]
    pictures = json.loads(str(found["pictures"]))
    assert list(pictures) == ["a", "b"]
    assert list(pictures["a"]) == ["0", "10", "20", "30", "40"]
    size = len(json.dumps(pictures))
    fewer = values_of(tmp_path, config=ReportConfig(picture_mb=0.65 * size / 2**20))[0]
    steps = list(json.loads(str(fewer["pictures"]))["a"])
    assert (steps[0], steps[-1], fewer["left_out"]) == ("0", "40", 2)
    linked = values_of(tmp_path, config=ReportConfig(pictures="link"))[0]
    assert json.loads(str(linked["pictures"]))["a"]["10"] == "validation/step-00000010/a.png"


def test_the_score_that_chose_the_checkpoint_leads(tmp_path):
    write_json(tmp_path / "run.json", {"command": "train", "result": {"iou/car": 0.6, "mean_iou": 0.5}})
    found, charts, _ = values_of(tmp_path)
    cards = found["cards"]
    assert [(card["name"], card["value"]) for card in cards[:2]] == [("IoU of car", "0.600"), ("mean IoU", "0.500")]
    leading = charts["scores of the validation"]["lines"]
    assert [line["name"] for line in leading] == ["IoU of car", "mean IoU"]
    assert leading[0]["values"] == [0.6, None]
