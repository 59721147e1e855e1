"""`segmeter score` with slices and objects as a user types it."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from segmeter.evaluation import drive
from segmeter.metrics.summary.summarise import summarise
from tests.cli.sharded import done, latest, listed, make_pairs, newest, run
from tests.data.crafted import put

SCORE = ["score", "predictions=predictions", "references=references", "data.num_classes=3", "metrics.bootstrap=100"]
SLICED = ["metrics.slices=cases.csv", "metrics.slice_by=[ward]", "report.html=false"]


@pytest.fixture(autouse=True)
def _cases(in_tmp: None) -> None:
    names = [f"case{seed:02}" for seed in range(12)]
    make_pairs(Path(), names, wrong=lambda seed: 90 if seed % 2 else 20)
    lines = [f"{name},{'south' if seed % 2 else 'north'}\n" for seed, name in enumerate(names)]
    put(Path("cases.csv"), "".join(["case_id,ward\n", *lines]))


def test_slices_are_printed_and_kept_and_objects_have_their_table(capsys: pytest.CaptureFixture[str]) -> None:
    measures = "metrics.measures=[content,events]"
    by = "metrics.slice_by=[ward,share/class_1,touches_border/class_2]"
    assert run(*SCORE, *SLICED[:1], by, measures, "report.html=false") == 0
    printed = capsys.readouterr().out
    assert "south (worst)" in printed
    assert "by slice" in printed
    summary = latest("score")
    assert summary["slices"]["worst"] == {"by": "ward", "slice": "south"}
    assert [each["n"] for each in summary["slices"]["by"]["ward"].values()] == [6, 6]
    events = pq.read_table(newest("runs/score") / "objects.parquet").to_pydict()
    for name, side in (("missed", "target"), ("spurious", "prediction"), ("matched", "target")):
        for region in ("class_0", "class_1", "class_2"):
            rows = [*zip(events["region"], events["side"], events["event"], strict=True)]
            assert rows.count((region, side, name)) == summary["measures"][f"objects_{name}"][region]["dataset"]


BRIGHT = ["images=images", "metrics.slice_by=[brightness]", "metrics.measures=[content]", "report.html=false"]
BRIGHT += ["report.overlays=2", "report.worst=0"]


@pytest.fixture
def _images() -> None:
    for seed in range(12):
        put(Path(f"images/case{seed:02}.png"), np.full((20, 30, 3), 20 * seed, np.uint8))


def halved(*arguments: str) -> str:
    """Run both shards; gives what names them to merge."""
    for shard in (1, 2):
        assert run(*SCORE, *arguments, f"shard={shard}/2", f"run.name=part{shard}") == 0
    return listed(Path("runs/score").glob("*part*"))


@pytest.mark.usefixtures("_images")
def test_images_are_sliced_by_brightness_alone_or_in_shards() -> None:
    """Mutation seen to fail: images that are not handed on."""
    whole = done(*SCORE, *BRIGHT, "run.name=whole")
    assert run("merge", halved(*BRIGHT), "report.html=false") == 0
    for name in ("metrics.json", "cases.csv"):
        assert (newest("runs/merge") / name).read_bytes() == (whole / name).read_bytes()
    found = latest("merge")["slices"]["by"]["brightness"]
    assert [each["n"] for each in found.values()] == [4, 4, 4]


@pytest.mark.usefixtures("_images")
def test_images_that_changed_are_seen_when_a_run_is_resumed(refused) -> None:
    """Their brightness decides a case's slice. Mutation seen to fail: a hash of the masks alone."""
    assert run(*SCORE, *BRIGHT) == 0
    assert run(*SCORE, *BRIGHT, "resume=auto") == 0
    put(Path("images/case03.png"), np.full((20, 30, 3), 250, np.uint8))
    said = refused(*SCORE, *BRIGHT, "resume=auto")
    assert "the files of cases changed since they were measured (1: case03)" in said


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
def test_a_case_without_a_slice_is_named_before_anything_is_measured(arguments, message, refused):
    for folder in ("references", "predictions"):
        put(Path(folder, "case12.png"), np.zeros((20, 30), np.uint8))
    assert message in refused(*SCORE, *arguments)
    assert not Path("runs").exists()


def move_south(path: Path) -> None:
    path.write_text(path.read_text().replace("south", "west"))


TABLES = ["metrics.slices=cases.csv", "metrics.cluster=cases.csv:ward", "metrics.slice_by=[other.csv:ward]"]


@pytest.mark.parametrize("name", ["cases.csv", "other.csv"])
def test_a_table_that_changed_since_a_run_is_another_run(name: str, refused) -> None:
    """Mutation seen to fail: the figures of before, and no word of the table."""
    Path("other.csv").write_bytes(Path("cases.csv").read_bytes())
    line = [*SCORE, *TABLES, "report.html=false", "run.name=x"]
    folder = done(*line)
    before = (folder / "run.json").read_bytes()
    move_south(Path(name))
    assert f"resume: `tables.{name}` was " in refused(*line, f"resume={folder}")
    assert (folder / "run.json").read_bytes() == before


def test_a_table_that_changes_while_it_is_used_leaves_no_metrics(monkeypatch, refused) -> None:
    def summarise_and_move(*given: object) -> dict[str, object]:
        move_south(Path("cases.csv"))
        return summarise(*given)

    monkeypatch.setattr(drive, "summarise", summarise_and_move)
    said = "cases.csv: expected `table` to stay as it is, got a change while it was used. Run again."
    assert said in refused(*SCORE, *SLICED)
    assert not [*Path("runs").rglob("metrics.json")]


def test_shards_are_not_merged_by_a_table_that_changed(refused) -> None:
    parts = halved(*SLICED)
    move_south(Path("cases.csv"))
    assert "where other is tables.cases.csv" in refused("merge", parts)
