"""Pictures of the parts of a run become those that the run would have drawn without its parts."""

from pathlib import Path

import pytest

from segmeter.cli.commands.finished import take_pictures
from segmeter.evaluation.pieces import Piece
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.cases.table import order_rows
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.chosen import Ranking, choose_cases
from segmeter.report.pictures.flatten import picture_path
from segmeter.report.pictures.layers import layers_path
from segmeter.report.pictures.worst import crops_path
from tests.metrics.build import class_spec, random_rows

SPEC = class_spec(4)
METRICS = MetricsConfig()


def draw(folder: Path, names: set[str], *, crops: set[str] | None = None) -> None:
    """Pictures, layers and crops of cases, each with the name of its case in it."""
    for name in names:
        for path in (picture_path(folder / "overlays", name), layers_path(folder, name) / "image.png"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
    for name in crops or set():
        crops_path(folder, name).mkdir(parents=True)
        (crops_path(folder, name) / "image.png").write_text(name)


def piece(folder: Path, names: list[str], spec=SPEC) -> Piece:
    empty = {name: {} for name in ("identity", "shard", "inputs", "record")}
    return Piece(folder=folder, command="eval", cases=dict.fromkeys(names, ("1", "{}")), spec=spec, **empty)


def ranked(rows) -> Ranking:
    return Ranking.of(build_scoreboard(order_rows("test", rows, SPEC), SPEC, METRICS))


def draw_run(folder: Path, rows, config: ReportConfig) -> Piece:
    """A run, or a part of one, with what it would draw of its own cases."""
    draw(folder, choose_cases(ranked(rows), config), crops={*ranked(rows).worst[: config.worst]})
    return piece(folder, [row.case_id for row in rows])


def taken(folder: Path) -> dict[str, str]:
    """What each picture, layer and crop shows."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.png")}


@pytest.mark.parametrize(("count", "overlays"), [(1, 3), (2, -1), (2, 6), (5, 0), (5, 3)])
def test_they_are_those_of_the_run_without_parts(count: int, overlays: int, tmp_path: Path) -> None:
    """Mutation seen to fail: the worst of each class not asked for."""
    rows = random_rows(17, 4, seed=count)
    config = ReportConfig(overlays=overlays, worst=2)
    pieces = [draw_run(tmp_path / f"shard{number}", rows[number::count], config) for number in range(count)]
    merged, whole = tmp_path / "merged", tmp_path / "whole"
    merged.mkdir()
    write_cases(merged, rows, SPEC)
    take_pictures(pieces, config, METRICS, merged)
    draw_run(whole, rows, config)
    assert taken(merged) == taken(whole)
    assert {path.name for path in (merged / "worst").iterdir()} == {*ranked(rows).worst[:2]}
    assert (merged / "worst.csv").is_file()


def test_without_scores_the_sample_alone_is_drawn(tmp_path: Path) -> None:
    """Of predictions, none of which is worst."""
    names = [f"case{number}" for number in range(9)]
    config = ReportConfig(overlays=4, worst=3)
    chosen = choose_cases(Ranking(case_ids=names), config.replace(worst=0))
    pieces = [piece(tmp_path / str(number), names[number::2], spec=None) for number in range(2)]
    for each in pieces:
        draw(each.folder, set(each.cases))
    (tmp_path / "merged").mkdir()
    take_pictures(pieces, config, None, tmp_path / "merged")
    assert {path.stem for path in (tmp_path / "merged" / "overlays").iterdir()} == chosen
    assert len(chosen) == 4
