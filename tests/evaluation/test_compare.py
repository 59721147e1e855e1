"""Comparing runs: the figures of two folders, and what makes runs incomparable."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from segmeter.errors import DataError, InputError
from segmeter.evaluation.compare import compare, name_runs
from segmeter.evaluation.score import score
from segmeter.metrics.config import MetricsConfig
from segmeter.vocabulary import ClassSpec
from tests.data.crafted import THREE
from tests.evaluation.masks import FEW, LABELS, TARGETS, put_masks, scoring

Masks = dict[str, list[list[int]]]


def make_run(
    folder: Path,
    *,
    targets: Masks = TARGETS,
    labels: Masks = LABELS,
    spec: ClassSpec = THREE,
    config: MetricsConfig = FEW,
) -> Path:
    put_masks(folder / "references", targets)
    put_masks(folder / "predictions", labels)
    score(replace(scoring(folder, spec=spec), metrics=config))
    return folder


def test_the_difference_is_that_of_the_summaries(tmp_path: Path) -> None:
    better = make_run(tmp_path / "better", labels={"a": LABELS["a"], "b": TARGETS["b"]})
    worse = make_run(tmp_path / "worse")
    result = compare([better, worse], FEW)
    one, two = (json.loads((folder / "metrics.json").read_text()) for folder in (better, worse))
    for metric, entry in result["metrics"].items():
        (pair,) = entry["pairs"]
        assert (pair["first"], pair["second"]) == ("better", "worse")
        assert pair["dataset_difference"] == pytest.approx(one["dataset"][metric] - two["dataset"][metric], rel=1e-12)
        assert entry["dataset"] == {"better": one["dataset"][metric], "worse": two["dataset"][metric]}
        assert entry["ranking"]["order"] == ["better", "worse"]
    assert result["n_cases"] == 2
    assert result["classes"] == ["a", "b", "c"]
    assert "Only 2 independent units" in result["bootstrap"]["warning"]


def test_a_run_against_its_copy_differs_nowhere(tmp_path: Path) -> None:
    result = compare([make_run(tmp_path / "one"), make_run(tmp_path / "two")], FEW)
    (pair,) = result["metrics"]["mean_iou"]["pairs"]
    assert pair["dataset_difference"] == 0.0
    assert pair["wilcoxon_p"] == pair["wilcoxon_p_holm"] == 1.0


MORE = {"c": [[0]]}
OTHER_B = {"b": [[1, 1, 1], [0, 0, 0]]}
FOREGROUND = MetricsConfig(bootstrap=50, background=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"targets": TARGETS | MORE, "labels": LABELS | MORE}, "1 missing from 'one': c", id="cases"),
        pytest.param({"targets": TARGETS | OTHER_B}, "1 cases of 'two' with another target: b", id="targets"),
        pytest.param(
            {"spec": THREE.replace(names=("a", "b", "d"))}, "as 'one' with a, b, c, got a, b, d", id="classes"
        ),
        pytest.param({"config": FOREGROUND}, "means over b, c in 'two'", id="background"),
    ],
)
def test_runs_that_differ_are_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two", **changes)  # type: ignore[arg-type]
    with pytest.raises(InputError) as caught:
        compare([one, two], FEW)
    assert message in str(caught.value)


def test_an_ignored_value_that_differs_is_refused(tmp_path: Path) -> None:
    targets = {"a": [[0, 1, 2]]}
    one = make_run(tmp_path / "one", targets=targets, labels=targets)
    spec = THREE.replace(ignore_index=None)
    two = make_run(tmp_path / "two", targets=targets, labels=targets, spec=spec)
    with pytest.raises(InputError, match="same ignore_index, as 'one' with 255, got None in 'two'"):
        compare([one, two], FEW)


def test_another_convention_is_refused(tmp_path: Path) -> None:
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two")
    summary = json.loads((two / "metrics.json").read_text()) | {"convention": "other"}
    (two / "metrics.json").write_text(json.dumps(summary))
    with pytest.raises(InputError, match=r"follow metrics\.convention=segmeter, got other in 'two'"):
        compare([one, two], FEW)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_what_is_no_finished_run_is_refused(content: str | None, tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    (tmp_path / "two").mkdir()
    if content is not None:
        (tmp_path / "two" / "metrics.json").write_text(content)
    with pytest.raises(DataError, match=r"metrics\.json"):
        compare([one, tmp_path / "two"], FEW)


def test_names_are_as_short_as_they_can_be() -> None:
    dated = [Path("/r/2026-01-02_030405_a"), Path("/r/2026-01-02_030406_b")]
    assert list(name_runs(dated)) == ["a", "b"]
    same = [Path("/r/2026-01-02_030405_a"), Path("/r/2026-01-02_030406_a")]
    assert list(name_runs(same)) == ["2026-01-02_030405_a", "2026-01-02_030406_a"]
    assert list(name_runs([Path("/r/a"), Path("/q/a")])) == ["/r/a", "/q/a"]


@pytest.mark.parametrize(
    ("folders", "message"),
    [([Path("/r/a")], "two or more run folders, got 1"), ([Path("/r/a"), Path("/r/b/../a")], "/r/a twice")],
)
def test_one_run_or_the_same_twice_is_refused(folders: list[Path], message: str) -> None:
    with pytest.raises(InputError, match=message):
        name_runs(folders)
