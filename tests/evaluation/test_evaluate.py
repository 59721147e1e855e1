"""An evaluation whose results cross through the ring: what it writes must not depend on how."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from segmeter.bridge.transport import open_transport
from segmeter.evaluation.evaluate import Evaluation, evaluate
from segmeter.evaluation.predict import PredictionRun, predict
from segmeter.export.config import ExportConfig
from segmeter.inference import async_results as outbox
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.metrics.cases.table import read_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.postprocess.config import PostprocessConfig
from tests.bridge.fake_stream import FakeTransport
from tests.training.tiny import LongTarget, TinyCases, cross_entropy, tiny_segmenter

CPU = torch.device("cpu")


def predictor():
    return Predictor(tiny_segmenter(), InferenceConfig(precision="float32", batch_size=2), CPU)


def run_evaluation(folder: Path, cases: TinyCases, events: list[str]):
    return evaluate(
        Evaluation(
            predictor=predictor(),
            dataset=cases,
            loss=LongTarget(cross_entropy()),
            export=ExportConfig(probs=True),
            postprocess=PostprocessConfig(),
            metrics=MetricsConfig(),
            folder=folder,
            on_case=lambda prediction, cleaned, row: events.append(prediction.sample.case_id),
        )
    )


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def stream(monkeypatch):
    transport = FakeTransport()
    monkeypatch.setattr(outbox, "open_transport", lambda device: transport)
    return transport


def test_every_file_is_the_same_with_and_without_a_stream(tmp_path, stream, monkeypatch):
    """Mutations seen to fail: no wait (poison in the files); the exporter left out (nothing is sent)."""
    cases, events = TinyCases(count=7), []
    run_evaluation(tmp_path / "stream", cases, events)
    assert len(stream.starts) == 4 + 4 + 7, "labels and losses of four batches, probabilities of seven cases"
    assert events == list(cases.case_ids)
    monkeypatch.setattr(outbox, "open_transport", open_transport)
    run_evaluation(tmp_path / "plain", cases, events)
    with_stream, without = files(tmp_path / "stream"), files(tmp_path / "plain")
    assert len(without) >= 2 * 7 + 3
    assert with_stream == without


@pytest.mark.usefixtures("stream")
def test_each_row_and_file_belongs_to_its_case(tmp_path):
    """By a forward pass of the test's own. Mutation seen to fail: the cases of a batch reversed."""
    cases, segmenter = TinyCases(count=5), tiny_segmenter().eval()
    run_evaluation(tmp_path, cases, [])
    rows = {row.case_id: row for row in read_cases(tmp_path / "cases.parquet")}
    for sample in (cases[index] for index in range(5)):
        with torch.no_grad():
            logits = segmenter(torch.from_numpy(sample.image).permute(2, 0, 1)[None])
        target = torch.from_numpy(sample.target.astype(np.int64))[None]
        expected = float(torch.nn.functional.cross_entropy(logits, target, ignore_index=255))
        assert rows[sample.case_id].loss == pytest.approx(expected, rel=1e-5)
        labels = np.asarray(Image.open(tmp_path / "predictions/labels" / f"{sample.case_id}.png"))
        np.testing.assert_array_equal(labels, logits.argmax(1)[0].numpy())
        probs = np.load(tmp_path / "predictions/probs" / f"{sample.case_id}.npy")
        np.testing.assert_allclose(probs, logits.softmax(1)[0].numpy(), rtol=1e-5, atol=1e-6)


def test_predict_sends_its_labels_through_the_ring_too(tmp_path, stream):
    """Mutation seen to fail: the exporter left out."""
    written = predict(
        PredictionRun(
            predictor=predictor(),
            dataset=TinyCases(count=3),
            export=ExportConfig(),
            postprocess=PostprocessConfig(),
            folder=tmp_path,
            on_case=lambda prediction, cleaned: None,
        )
    )
    assert written == 3
    assert len(stream.starts) == 2
    assert stream.done == len(stream.queue)
