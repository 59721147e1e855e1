"""Folders of the user's own, for the tasks that the built-in data does not have: from files to figures."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.cli.main import main

SIZE = (40, 52)
TRAIN = [
    "data.samples_per_epoch=6",
    "training.epochs=1",
    "training.batch_size=2",
    *("model.encoder=tu-test_resnet", "model.depth=3", "model.decoder_channels=[8,8,4]"),
    "report.html=false",
]


def newest(folder: Path) -> Path:
    return max(path for path in folder.iterdir() if path.is_dir())


def write(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


def scenes(count: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Bright discs on noise: id, image (H, W, 3), mask of the disc."""
    rng = np.random.default_rng(0)
    rows, columns = np.indices(SIZE)
    found = []
    for index in range(count):
        centre = rng.integers(12, 28, 2)
        disc = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < 81
        image = rng.integers(0, 90, (*SIZE, 3)) + 150 * disc[..., None]
        found.append((f"scene-{index:02d}", image.astype(np.uint8), disc))
    return found


def train_and_evaluate(*data: str, measures: str = "metrics.measures=[]") -> Path:
    main(["train", *data, *TRAIN[:-1]])
    main(["eval", f"checkpoint={newest(Path('runs/train'))}", *data, TRAIN[-1], "export.probs=true", measures])
    return newest(Path("runs/eval"))


def test_a_binary_task_with_masks_of_0_and_255(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, image, disc in scenes(12):
        write(tmp_path / "set/images" / f"{name}.png", image)
        write(tmp_path / "set/masks" / f"{name}.png", disc.astype(np.uint8) * 255)
    folder = train_and_evaluate(
        "data=folder", "data.root=set", "data.task=binary", "data.classes=[background,disc]",
        "data.label_map={0: 0, 255: 1}", "data.val_fraction=0.25", "data.test_fraction=0.25",
    )  # fmt: skip
    summary = json.loads((folder / "metrics.json").read_text())
    assert summary["task"] == "binary"
    assert np.shape(summary["confusion_matrix"]) == (2, 2)
    assert np.sum(summary["confusion_matrix"]) == summary["n_cases"] * SIZE[0] * SIZE[1]
    for path in (folder / "predictions/labels").iterdir():
        probs = np.load(folder / "predictions/probs" / f"{path.stem}.npy")
        assert probs.shape == (1, *SIZE)
        assert ((probs[0] > 0.5) == np.asarray(Image.open(path))).all()


def test_a_multilabel_task_with_a_folder_per_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, image, disc in scenes(12):
        write(tmp_path / "set/images" / f"{name}.png", image)
        left = np.zeros(SIZE, bool)
        left[:, : SIZE[1] // 2] = True
        for label, mask in {"disc": disc, "left": left}.items():  # they overlap
            write(tmp_path / "set/masks" / label / f"{name}.png", mask.astype(np.uint8))
    folder = train_and_evaluate(
        "data=folder", "data.root=set", "data.task=multilabel", "data.classes=[disc,left]",
        "data.val_fraction=0.25", "data.test_fraction=0.25",
    )  # fmt: skip
    summary = json.loads((folder / "metrics.json").read_text())
    assert summary["confusion_matrix"] is None
    assert np.shape(summary["confusion_matrices"]) == (2, 2, 2)
    for label in ("disc", "left"):
        assert len(list((folder / "predictions/labels" / label).glob("*.png"))) == summary["n_cases"]


def test_masks_of_0_and_255_without_a_map_are_refused_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, image, disc in scenes(12):
        write(tmp_path / "set/images" / f"{name}.png", image)
        write(tmp_path / "set/masks" / f"{name}.png", disc.astype(np.uint8) * 255)
    data = [
        "data=folder",
        "data.root=set",
        "data.task=binary",
        "data.classes=[background,disc]",
        "data.val_fraction=0.25",
    ]
    with pytest.raises(SystemExit) as leaving:
        main(["train", *data, *TRAIN[:-1]])
    assert leaving.value.code == 2
    assert "data.label_map={0: 0, 255: 1}" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_masks_of_object_numbers_train_a_binary_model_and_are_measured_by_object(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, (name, image, disc) in enumerate(scenes(12)):
        objects = disc.astype(np.uint16) * (300 + number)
        half = objects[:, : SIZE[1] // 3]
        half[half > 0] = 7  # where the disc reaches so far, two objects that touch
        write(tmp_path / "set/images" / f"{name}.png", image)
        write(tmp_path / "set/masks" / f"{name}.png", objects)
    folder = train_and_evaluate(
        "data=folder", "data.root=set", "data.task=binary", "data.classes=[background,disc]", "data.instances=true",
        "data.val_fraction=0.25", "data.test_fraction=0.25", measures="metrics.measures=[instances]",
    )  # fmt: skip
    found = json.loads((folder / "metrics.json").read_text())["measures"]
    masks = [np.asarray(Image.open(f"set/masks/{path.name}")) for path in (folder / "predictions/labels").iterdir()]
    objects = sum(len(np.unique(mask)) - 1 for mask in masks)
    assert objects > len(masks)  # some discs are two objects in one connected part
    assert found["tp"]["disc"]["dataset"] + found["fn"]["disc"]["dataset"] == objects
