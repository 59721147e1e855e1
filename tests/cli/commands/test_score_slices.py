"""`segmeter score` with slices and objects as a user types it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from segmeter.evaluation import drive
from segmeter.metrics.summary.summarise import summarise
from tests.cli.sharded import run as code_of
from tests.data.crafted import noise, put

SCORE = ["score", "predictions=predictions", "references=references", "data.num_classes=3", "metrics.bootstrap=100"]
SLICED = ["metrics.slices=cases.csv", "metrics.slice_by=[ward]", "report.html=false"]


@pytest.fixture(autouse=True)
def _cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["case_id,ward"]
    for seed in range(12):
        target = noise(20, 30, None, seed=seed) % 3
        wrong = noise(20, 30, None, seed=seed + 99) < (90 if seed % 2 else 20)
        put(tmp_path / "references" / f"case{seed:02}.png", target)
        put(tmp_path / "predictions" / f"case{seed:02}.png", np.where(wrong, 0, target).astype(np.uint8))
        lines.append(f"case{seed:02},{'south' if seed % 2 else 'north'}")
    (tmp_path / "cases.csv").write_text("\n".join(lines) + "\n")


def test_slices_are_printed_and_kept_and_objects_have_their_table(capsys: pytest.CaptureFixture[str]) -> None:
    measures = "metrics.measures=[content,events]"
    by = "metrics.slice_by=[ward,share/class_1,touches_border/class_2]"
    assert code_of(*SCORE, *SLICED[:1], by, measures, "report.html=false") == 0
    printed = capsys.readouterr().out
    assert "south (worst)" in printed
    assert "by slice" in printed
    (folder,) = Path("runs/score").iterdir()
    summary = json.loads((folder / "metrics.json").read_text())
    assert summary["slices"]["worst"] == {"by": "ward", "slice": "south"}
    assert [each["n"] for each in summary["slices"]["by"]["ward"].values()] == [6, 6]
    objects = pq.read_table(folder / "objects.parquet")
    numbers = summary["measures"]
    events = objects.to_pydict()
    for name, side in (("missed", "target"), ("spurious", "prediction"), ("matched", "target")):
        for region in ("class_0", "class_1", "class_2"):
            rows = zip(events["region"], events["side"], events["event"], strict=True)
            assert sum(row == (region, side, name) for row in rows) == numbers[f"objects_{name}"][region]["dataset"]


BRIGHT = ["images=images", "metrics.slice_by=[brightness]", "metrics.measures=[content]", "report.html=false"]
BRIGHT += ["report.overlays=2", "report.worst=0"]


@pytest.fixture
def _images() -> None:
    for seed in range(12):
        put(Path(f"images/case{seed:02}.png"), np.full((20, 30, 3), 20 * seed, np.uint8))


@pytest.mark.usefixtures("_images")
def test_images_are_sliced_by_brightness_alone_or_in_shards() -> None:
    """Mutation seen to fail: images that are not handed on."""
    assert code_of(*SCORE, *BRIGHT, "run.name=whole") == 0
    for shard in (1, 2):
        assert code_of(*SCORE, *BRIGHT, f"shard={shard}/2", f"run.name=part{shard}") == 0
    parts = sorted(str(path) for path in Path("runs/score").glob("*part*"))
    assert code_of("merge", f"runs=[{','.join(parts)}]", "report.html=false") == 0
    (whole,), (merged,) = (list(Path("runs").glob(name)) for name in ("score/*whole", "merge/*"))
    for name in ("metrics.json", "cases.csv"):
        assert (merged / name).read_bytes() == (whole / name).read_bytes()
    found = json.loads((whole / "metrics.json").read_text())["slices"]["by"]["brightness"]
    assert [each["n"] for each in found.values()] == [4, 4, 4]


@pytest.mark.usefixtures("_images")
def test_images_that_changed_are_seen_when_a_run_is_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    """Their brightness decides a case's slice. Mutation seen to fail: a hash of the masks alone."""
    assert code_of(*SCORE, *BRIGHT) == 0
    assert code_of(*SCORE, *BRIGHT, "resume=auto") == 0
    put(Path("images/case03.png"), np.full((20, 30, 3), 250, np.uint8))
    capsys.readouterr()
    assert code_of(*SCORE, *BRIGHT, "resume=auto") == 2
    assert "the files of cases changed since they were measured (1: case03)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (SLICED, "to have a value of ward for every case, got 1 without: 'case12'"),
        (["metrics.slice_by=[object_size/class_1]"], "Add content to metrics.measures."),
        (["metrics.slice_by=[brightness]", "metrics.measures=[content]"], "use segmeter eval, or score with images="),
        (["metrics.slices=cases.txt", "metrics.slice_by=[ward]"], "`slices` to name a table, got cases.txt"),
        (["metrics.slice_by=[wrad]", "metrics.slices=cases.csv"], "Did you mean 'ward'?"),
    ],
)
def test_a_case_without_a_slice_is_named_before_anything_is_measured(arguments, message, tmp_path, capsys):
    for folder in ("references", "predictions"):
        put(tmp_path / folder / "case12.png", np.zeros((20, 30), np.uint8))
    assert code_of(*SCORE, *arguments) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def move_south(path: Path) -> None:
    path.write_text(path.read_text().replace("south", "west"))


TABLES = ["metrics.slices=cases.csv", "metrics.cluster=cases.csv:ward", "metrics.slice_by=[other.csv:ward]"]


@pytest.mark.parametrize("name", ["cases.csv", "other.csv"])
def test_a_table_that_changed_since_a_run_is_another_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Mutation seen to fail: the figures of before, and no word of the table."""
    Path("other.csv").write_bytes(Path("cases.csv").read_bytes())
    run = [*SCORE, *TABLES, "report.html=false", "run.name=x"]
    assert code_of(*run) == 0
    (folder,) = Path("runs/score").iterdir()
    before = (folder / "run.json").read_bytes()
    move_south(Path(name))
    assert code_of(*run, f"resume={folder}") == 2
    assert f"resume: `tables.{name}` was " in capsys.readouterr().err
    assert (folder / "run.json").read_bytes() == before


def test_a_table_that_changes_while_it_is_used_leaves_no_metrics(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def summarise_and_move(*given: object) -> dict[str, Any]:
        move_south(Path("cases.csv"))
        return summarise(*given)

    monkeypatch.setattr(drive, "summarise", summarise_and_move)
    assert code_of(*SCORE, *SLICED) == 2
    assert "cases.csv: expected `table` to stay as it is, got a change while it was used. Run again." in (
        capsys.readouterr().err
    )
    assert not [*Path("runs").rglob("metrics.json")]


def test_shards_are_not_merged_by_a_table_that_changed(capsys: pytest.CaptureFixture[str]) -> None:
    for shard in (1, 2):
        assert code_of(*SCORE, *SLICED, f"shard={shard}/2", f"run.name=part{shard}") == 0
    move_south(Path("cases.csv"))
    parts = sorted(map(str, Path("runs/score").glob("*part*")))
    assert code_of("merge", f"runs=[{','.join(parts)}]") == 2
    assert "where other is tables.cases.csv" in capsys.readouterr().err
