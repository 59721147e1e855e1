"""`segmeter check`: what it prints of good data, and how little it prints of much that is wrong."""

import json

import numpy as np
import pytest

from segmeter.data.verification import verify as verified
from tests.cli.sharded import run
from tests.data.crafted import make_folder, noise, put

DATA = ["data=folder", "data.task=binary", "data.classes=[background,cell]"]


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verified, "SETTLED_SECONDS", -60.0)
    monkeypatch.setenv("COLUMNS", "200")


def row(text: str, name: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if f" {name} " in line]
    return [cell.strip() for cell in line.replace("┃", "│").split("│")[2:-1]]


def test_shares_of_multilabel_classes_are_of_their_own_plane(tmp_path, capsys):
    """A vessel on 57 of 1000 pixels, 10 more ignored, under a disc. Mutation seen to fail: the share of all pixels."""
    put(tmp_path / "images" / "a.png", noise(25, 40))
    vessel, disc = np.zeros((25, 40), np.uint8), np.zeros((25, 40), np.uint8)
    vessel.flat[:57], vessel.flat[990:], disc[:, :20] = 1, 9, 1
    put(tmp_path / "masks" / "vessel" / "a.png", vessel)
    put(tmp_path / "masks" / "disc" / "a.png", disc)
    options = ["data=folder", "data.task=multilabel", "data.classes=[vessel,disc]", "data.ignore_index=9"]
    assert run("check", *options, f"data.root={tmp_path}", "splits=[all]") == 0
    text = capsys.readouterr().out
    assert row(text, "vessel") == ["5.76 (1)"]  # 57 of 990
    assert row(text, "disc") == ["50.00 (1)"]
    assert row(text, "ignored, %")[:1] == ["0.50"]  # 10 of 2000


def test_twelve_bit_images_are_warned_of_once_for_all_splits(tmp_path, capsys):
    (tmp_path / "images").mkdir()
    for number in range(6):
        np.save(tmp_path / "images" / f"{number}.npy", noise(12, 10, seed=number).astype(np.uint16) * 16)
        put(tmp_path / "masks" / f"{number}.png", noise(12, 10, None, seed=number) % 2)
    for options, times in (([], 1), (["data.full_scale=4095"], 0)):
        assert run("check", *DATA, f"data.root={tmp_path}", *options) == 0
        assert capsys.readouterr().err.count("uint16 images of train, val, test is 4080 of 65535") == times


PIXELS = np.concatenate([noise(seed=seed).reshape(-1, 3) for seed in range(3)])  # of the images of `make_folder`


def test_values_are_shown_per_channel_and_written_and_a_second_run_reads_nothing(tmp_path, capsys):
    root, output = make_folder(tmp_path / "set"), tmp_path / "new" / "check.json"
    line = ["check", *DATA, f"data.root={root}", "splits=[all]"]
    named = ["data.channels=[red,green,blue]", f"output={output}"]
    for more, names, known in (([], ["0", "1", "2"], "0"), (named, ["red", "green", "blue"], "3")):
        assert run(*line, *more) == 0
        text = capsys.readouterr().out
        assert row(text, "unchanged, not read again")[:1] == [known]
        lines = [line.split("│")[1:-1] for line in text.splitlines() if "uint8" in line]
        assert [cells[2].strip() for cells in lines] == names
        for channel, cells in enumerate(lines):
            low, _, median, _, high, *moments = (float(cell) for cell in cells[3:])
            values = PIXELS[:, channel]
            assert (low, high) == (values.min(), values.max())
            assert abs(median - np.median(values)) < 12
            assert moments == pytest.approx([values.mean(), values.std()], rel=5e-4)  # four digits
    written = json.loads(output.read_text())
    found, suggested = written["splits"]["all"], written["suggested"]
    (values,) = found["intensities"]
    for channel, name in enumerate(names):
        assert values["channels"][name]["mean"] == pytest.approx(PIXELS[:, channel].mean(), rel=1e-9)
        assert values["channels"][name]["high"] == PIXELS[:, channel].max()
    assert found["cases"] == sum(size["cases"] for size in found["sizes"]) == 3
    assert sum(each["pixels"] for each in found["classes"].values()) == len(PIXELS)
    assert found["classes"]["cell"]["share"] * len(PIXELS) == pytest.approx(found["classes"]["cell"]["pixels"])
    assert suggested["data.mean"] == pytest.approx(list(PIXELS.mean(0) / 255), rel=1e-9)
    assert any(line.startswith("augment.crop=") for line in suggested["cpu"])
    assert " ".join(suggested["cpu"]).split()[0] in text
    assert run(*line, "data.verify=always") == 0
    assert row(capsys.readouterr().out, "unchanged, not read again")[:1] == ["0"]


def test_the_balance_of_folds_is_shown_and_written(tmp_path, capsys):
    names = tuple(f"case{i:02d}" for i in range(9))
    root = make_folder(tmp_path / "set", names, height=4, width=4)
    for name in names:
        put(root / "masks" / f"{name}.png", np.full((4, 4), name in names[:3], np.uint8))
    folds = [f"data.root={root}", "data.fold=1/3", "data.strata=classes", "data.test_fraction=0"]
    assert run("check", *DATA, *folds, "splits=[train,val]", f"output={tmp_path / 'found.json'}") == 0
    text = capsys.readouterr().out
    table = text[text.index("cases per fold") :]
    assert row(table, "cell") == ["1", "1", "1"]
    found = json.loads((tmp_path / "found.json").read_text())["folds"]
    assert [fold["cases"] for fold in found] == [3, 3, 3]
    assert [fold["classes"]["background"] for fold in found] == [2, 2, 2]


def test_few_images_and_pairs_are_pointed_out_before_a_training(tmp_path, capsys):
    root = make_folder(tmp_path / "set", tuple(f"Image_{i:02}{side}" for i in range(6) for side in "LR"))
    given = [f"data.root={root}", "data.test_fraction=0", "data.val_fraction=0.4", "splits=[train,val]"]
    assert run("check", *DATA, *given, f"output={tmp_path / 'found.json'}") == 0
    text, errors = capsys.readouterr()
    assert "warning: validation on two images: the best checkpoint is chosen by chance" in errors
    assert "few       12 images: `segmeter train folds=5 ...`" in text
    assert "pairs     6 names" in text
    hints = json.loads((tmp_path / "found.json").read_text())["hints"]
    assert [f"{name:<10}{hint}" in text for name, hint in hints.items()] == [True, True]
