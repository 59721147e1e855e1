"""`segmeter score` as a user types it: the run folder, the exit codes, and no torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.sharded import run
from tests.data.crafted import noise, put
from tests.data.volumes import save_nifti, save_volume

FAST = ["metrics.bootstrap=20", "data.num_classes=3", "data.ignore_index=255", "run.name=x"]
FOLDERS = ["predictions=predictions", "references=references"]
RECORDS = {"cases.parquet", "cases.csv", "metrics.json", "config.yaml", "overrides.yaml", "run.json", "log.txt"}


@pytest.fixture(autouse=True)
def _three_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate("abc"):
        target = noise(20, 30, None, seed=seed) % 3
        labels = np.where(noise(20, 30, None, seed=seed + 9) < 30 * (seed + 1), 0, target).astype(np.uint8)
        put(tmp_path / "references" / f"{name}.png", target)
        put(tmp_path / "predictions" / f"{name}.png", labels)
        put(tmp_path / "images" / f"{name}.png", noise(20, 30, seed=seed))


def run_folder() -> Path:
    (folder,) = Path("runs/score").iterdir()
    return folder


def test_a_run_without_images_leaves_the_figures_and_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from segmeter.cli.main import main; main(sys.argv[1:]); "
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    command = [sys.executable, "-W", "error", "-c", code, "score", *FOLDERS, *FAST]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mean IoU" in done.stdout
    assert {path.name for path in run_folder().iterdir()} >= RECORDS | {"report.html"}
    record = json.loads((run_folder() / "run.json").read_text())
    assert record["state"] == "done"
    assert record["references"] == str(tmp_path / "references")


def test_folders_may_have_blanks_and_umlauts_and_no_home_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "/proc/none")
    Path("Zähl Bilder").mkdir()
    for name in ("predictions", "references", "images"):
        Path(name).rename(Path("Zähl Bilder") / name)
    folders = [f"{name}='Zähl Bilder/{name}'" for name in ("predictions", "references", "images")]
    assert run("score", *folders, *FAST, "report.overlays=1", "run.root='Läufe 1'") == 0
    (page,) = Path("Läufe 1/score").glob("*/report.html")
    assert "data:image" in page.read_text("utf-8")


def test_what_is_missing_or_extra_is_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    Path("predictions/c.png").rename("predictions/d.png")
    assert run("score", *FOLDERS, *FAST, "missing=as_background", "report.html=false") == 0
    warnings = capsys.readouterr().err
    assert "cases without a prediction, scored as background (1: c)" in warnings
    assert "predictions without a reference in predictions (1: d)" in warnings
    assert json.loads((run_folder() / "metrics.json").read_text())["missing_predictions"]["cases"] == ["c"]


def test_bad_files_are_listed_and_end_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    put(Path("predictions/a.png"), b"no picture")
    put(Path("references/b.png"), noise(20, 30, None) // 255 + 77)
    assert run("score", *FOLDERS, *FAST) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("segmeter: ")]
    assert len(lines) == 2
    assert "predictions/a.png" in lines[0]
    assert "references/b.png" in lines[1]
    assert not Path("runs").exists()


def test_names_that_cannot_be_paired_hide_no_bad_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("predictions/c.png").unlink()
    Path("predictions/a.npy").write_bytes(b"twice")
    Path("predictions/b.png").write_bytes(b"no picture")
    assert run("score", *FOLDERS, *FAST, "metrics.measures=[surface]") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if line.startswith("segmeter:")]) == 3
    for text in (
        "`a prediction` for every name, got none for 1: c.",
        "`predictions` to have one file per name, as for 'a', got 2: a.npy, a.png.",
        "predictions/b.png: expected `content` to be PNG",
    ):
        assert any(text in line for line in lines), (text, lines)
    assert not Path("runs").exists()


def test_a_case_without_an_image_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("images/a.png").unlink()
    assert run("score", *FOLDERS, *FAST, "images=images") == 2
    assert "none for 1: a" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        pytest.param(
            ["data.num_classes=null"], "Set data.classes=[background,cell], or data.num_classes=2.", id="none"
        ),
        pytest.param(["data.classes=[a,b]"], "`data.num_classes` to be 2, as many as data.classes, got 3", id="both"),
        pytest.param(["data.ignore_index=2"], "it must not be a class, got 2", id="ignored class"),
        pytest.param(["+data.clases=[a]"], "Did you mean 'data.classes'?", id="unknown key"),
        pytest.param(
            ["missing=skip"], "expected `missing` to be one of error, as_background, got 'skip'", id="missing"
        ),
        pytest.param(["+metrics.groups.g=[nope]"], "got 'nope'", id="groups"),
    ],
)
def test_a_wrong_configuration_has_one_line_and_leaves_no_folder(
    overrides: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("score", *FOLDERS, *FAST, *overrides) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


VOLUMES = ["predictions=v/predictions", "references=v/references", "images=v/images", *FAST]


def make_volumes() -> None:
    """Case "b" has its errors in the second of four slices, its image in Hounsfield units."""
    for seed, name in enumerate("ab"):
        target = noise(4 * 20, 30, None, seed=seed).reshape(4, 20, 30) % 3
        labels = target.copy()
        labels[1, :10] = 0
        image = noise(4 * 20, 30, None, seed=9).reshape(4, 20, 30).astype(np.int16) * 20 - 1000
        save_nifti(Path(f"v/references/{name}.nii.gz"), target)
        save_volume(Path(f"v/predictions/{name}.npz"), labels)
        save_nifti(Path(f"v/images/{name}.nii.gz"), image)


def test_volumes_leave_the_same_folder_with_one_slice_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    make_volumes()
    titles: list[str] = []
    from segmeter.report.pictures import finished

    draw = finished.draw_picture
    monkeypatch.setattr(
        finished, "draw_picture", lambda *given, **named: (titles.append(named["title"]), draw(*given, **named))[1]
    )
    assert run("score", *VOLUMES) == 0
    assert sorted(titles) == ["a, slice 2 of 4", "b, slice 2 of 4"]
    assert {path.name for path in run_folder().iterdir()} >= RECORDS | {"report.html", "overlays", "manifest.json"}
    summary = json.loads((run_folder() / "metrics.json").read_text())
    assert summary["spacing"]["sources"] == {"NIfTI header": 2}


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_binary_and_multilabel_from_the_command_line(task: str) -> None:
    folders = ["t/%s/cell", "t/%s/dirt"] if task == "multilabel" else ["t/%s"]
    for seed, pattern in enumerate(folders):
        target = noise(20, 30, None, seed=seed) % 2
        put(Path(pattern % "references") / "a.png", target)
        put(Path(pattern % "predictions") / "a.png", np.where(noise(20, 30, None) < 50, 0, target).astype(np.uint8))
    classes = "[cell,dirt]" if task == "multilabel" else "[background,cell]"
    given = ["predictions=t/predictions", "references=t/references", f"data.task={task}", f"data.classes={classes}"]
    assert run("score", *given, "metrics.bootstrap=20", "report.html=false", "metrics.measures=[surface]") == 0
    summary = json.loads((run_folder() / "metrics.json").read_text())
    assert summary["task"] == task
    matrices = summary["confusion_matrices"] if task == "multilabel" else [summary["confusion_matrix"]]
    assert [np.sum(matrix) for matrix in matrices] == [600] * len(folders)
