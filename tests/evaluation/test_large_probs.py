"""Large images whose probabilities are kept: one at a time, with the same files, or refused before any work."""

from dataclasses import replace

import pytest

from segmeter.errors import InputError
from segmeter.evaluation import large, memory
from segmeter.evaluation.evaluate import evaluate
from segmeter.evaluation.predicted import CaseRun
from segmeter.export.config import ExportConfig
from tests.evaluation.test_large import SIZES, cases_of, data, evaluation

__all__ = ["data"]  # a fixture
PIXELS = 20_000  # a and c have more, b fewer


def kept(data, folder, **changes):
    export = ExportConfig(labels_format="tiff", probs=True, **changes)
    return evaluation(data, folder, dataset=replace(cases_of(data), streams=False), export=export)


def written(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "predictions").rglob("*.*"))}


def test_large_images_go_one_at_a_time_and_leave_the_same_files(data, tmp_path, monkeypatch):
    evaluate(kept(data, tmp_path / "together"))
    parts, predictions = [], CaseRun.predictions
    monkeypatch.setattr(
        CaseRun, "predictions", lambda run, cases, **options: parts.append(cases) or predictions(run, cases, **options)
    )
    monkeypatch.setattr(large, "WHOLE_PIXELS", PIXELS)
    evaluate(kept(data, tmp_path / "apart"))
    assert parts == [range(1), range(1, 2), range(2, 3)]
    assert written(tmp_path / "apart") == written(tmp_path / "together")
    assert (tmp_path / "apart" / "cases.csv").read_bytes() == (tmp_path / "together" / "cases.csv").read_bytes()


@pytest.mark.parametrize(
    ("changes", "per_pixel"), [({}, 31), ({"probs_dtype": "uint8"}, 58), ({"confidence": True}, 43)]
)
def test_one_that_does_not_fit_is_refused_before_any_is_predicted(data, tmp_path, monkeypatch, changes, per_pixel):
    monkeypatch.setattr(large, "WHOLE_PIXELS", PIXELS)
    monkeypatch.setattr(memory, "SMALL", 0)
    height, width = SIZES["a"]
    monkeypatch.setattr(memory, "free_bytes", lambda: height * width * per_pixel)
    run = kept(data, tmp_path / "fits", **changes)
    evaluate(run)
    monkeypatch.setattr(memory, "free_bytes", lambda: height * width * per_pixel - 1)
    with pytest.raises(InputError, match=r"case 'a', 300 x 200 with its probabilities: expected `memory` of about"):
        evaluate(kept(data, tmp_path / "refused", **changes))
    assert not written(tmp_path / "refused")
