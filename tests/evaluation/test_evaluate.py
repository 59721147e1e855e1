"""An evaluation whose results cross through the ring: what it writes must not depend on how."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from segmeter.bridge.host_copier import open_transport
from segmeter.cli.config.trained_data import describe_data
from segmeter.data.config import FolderConfig
from segmeter.data.files.geometry import Geometry
from segmeter.data.sample import Sample
from segmeter.data.verification.report import build_dataset, open_splits
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.evaluate import Evaluation, evaluate, measure_prediction, predict
from segmeter.evaluation.predicted import CaseRun
from segmeter.export.config import ExportConfig
from segmeter.inference import results as outbox
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.losses.focal import FocalLoss
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.summarise import summarise
from segmeter.postprocess.config import PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned
from tests.bridge.fake_stream import FakeTransport
from tests.data.crafted import BINARY, folder, make_folder, noise, put
from tests.training.tiny import LongTarget, TinyCases, cross_entropy, tiny_segmenter

CPU = torch.device("cpu")


def predictor():
    return Predictor(tiny_segmenter(), InferenceConfig(precision="float32", batch_size=2), CPU)


def run_evaluation(folder: Path, cases: TinyCases, loss: nn.Module | None = None):
    return evaluate(
        Evaluation(
            predictor=predictor(),
            dataset=cases,
            loss=loss or LongTarget(cross_entropy()),
            export=ExportConfig(probs=True),
            postprocess=PostprocessConfig(),
            metrics=MetricsConfig(),
            folder=folder,
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
    cases = TinyCases(count=7)
    run_evaluation(tmp_path / "stream", cases)
    assert len(stream.starts) == 4 + 4 + 7, "labels and losses of four batches, probabilities of seven cases"
    assert [row.case_id for row in read_cases(tmp_path / "stream")] == list(cases.case_ids)
    monkeypatch.setattr(outbox, "open_transport", open_transport)
    run_evaluation(tmp_path / "plain", cases)
    with_stream, without = files(tmp_path / "stream"), files(tmp_path / "plain")
    assert len(without) >= 2 * 7 + 3
    assert with_stream == without


@pytest.mark.usefixtures("stream")
def test_each_row_and_file_belongs_to_its_case(tmp_path):
    """By a forward pass of the test's own. Mutation seen to fail: the cases of a batch reversed."""
    cases, segmenter = TinyCases(count=5), tiny_segmenter().eval()
    run_evaluation(tmp_path, cases)
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


def test_the_loss_is_that_of_all_cases_as_one_batch(tmp_path):
    """By PyTorch's weighted cross-entropy of all pixels. Mutation seen to fail: the mean of the cases' losses."""
    cases, segmenter, weights = TinyCases(count=5, size=6), tiny_segmenter().eval(), [1.0, 5.0, 20.0]
    loss = FocalLoss("multiclass", gamma=0, class_weights=weights, ignore_index=255)
    summary = run_evaluation(tmp_path, cases, loss)
    samples = [cases[index] for index in range(5)]
    with torch.no_grad():
        logits = segmenter(torch.from_numpy(np.stack([sample.image for sample in samples])).permute(0, 3, 1, 2))
    target = torch.from_numpy(np.stack([sample.target for sample in samples]).astype(np.int64))
    options = {"weight": torch.tensor(weights), "ignore_index": 255}
    whole = float(torch.nn.functional.cross_entropy(logits, target, **options))
    each = [float(torch.nn.functional.cross_entropy(logits[i : i + 1], target[i : i + 1], **options)) for i in range(5)]
    assert summary["loss"]["dataset"] == pytest.approx(whole, rel=1e-5)
    assert summary["loss"]["mean"] == pytest.approx(np.mean(each), rel=1e-5)
    assert abs(np.mean(each) - whole) > 1e-4 * whole  # the two are told apart
    assert summarise(read_cases(tmp_path), cases.spec)["loss"] == summary["loss"]


@pytest.mark.parametrize("name", ["images/b.png", "masks/b.png"])
def test_a_file_that_changed_after_the_check_is_refused_by_name(tmp_path, name):
    """Mutation seen to fail: the data set of `open_splits` without its hashes."""
    config = folder(make_folder(tmp_path / "data"), classes=("ground", "cell", "edge"), task="multiclass")
    (cases,), _ = open_splits(config, ["all"])
    content = noise(12, 10, 3 if "images" in name else None, seed=9)
    put(tmp_path / "data" / name, content if "images" in name else content % 2)
    with pytest.raises(DataError, match=rf"{name}.*to have the content that was checked at the start, got another"):
        run_evaluation(tmp_path / "run", cases)
    assert not (tmp_path / "run" / "metrics.json").exists()
    assert not (tmp_path / "run" / "cases.parquet").exists()


def test_predict_sends_its_labels_through_the_ring_too(tmp_path, stream):
    """Mutation seen to fail: the exporter left out."""
    written = predict(
        CaseRun(
            predictor=predictor(),
            dataset=TinyCases(count=3),
            export=ExportConfig(),
            postprocess=PostprocessConfig(),
            folder=tmp_path,
        )
    )
    assert written == 3
    assert len(stream.starts) == 2
    assert stream.done == len(stream.queue)


@pytest.mark.parametrize(
    ("split", "changes", "key"),
    [("val", {"fold": "2/2"}, "fold"), ("test", {"split_seed": 1}, "split_seed"), ("all", {"split_seed": 1}, None)],
)
def test_cases_that_are_dealt_otherwise_than_for_training_are_refused(tmp_path, split, changes, key):
    """As the command line refuses them, which looks before it reads any data."""
    trained = FolderConfig(root=str(make_folder(tmp_path, tuple("abcdefghijkl"))), classes=("a", "b", "c"), fold="1/2")
    card = replace(tiny_segmenter().card, data=describe_data(trained))
    segmenter = tiny_segmenter()
    segmenter.card = card
    cases = build_dataset(trained.replace(**changes), split=split)
    job = Evaluation(
        predictor=Predictor(segmenter, InferenceConfig(precision="float32"), CPU),
        dataset=cases,
        loss=None,
        export=ExportConfig(),
        postprocess=PostprocessConfig(),
        metrics=MetricsConfig(bootstrap=0),
        folder=tmp_path / "run",
    )
    if key is None:
        assert evaluate(job)
        return
    with pytest.raises(ConfigError, match=f"`data.{key}` to be .* with data.split={split}, which else may hold cases"):
        evaluate(job)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("configured", "spacing", "unit"), [(None, (2.0, 0.5), "mm"), ((3.0, 3.0), (3.0, 3.0), "")])
def test_a_row_keeps_the_spacing_of_its_file_unless_one_is_configured(configured, spacing, unit):
    """Mutation seen to fail: the file's geometry is not looked at."""
    labels, place = np.zeros((4, 5), np.uint8), Geometry(spacing=(2.0, 0.5), unit="mm")
    sample = Sample(case_id="a", image=labels[..., None], target=labels, geometry=place)
    cleaned = Cleaned(labels=labels, instances=None, changed={})
    given = outbox.Prediction(sample=sample, labels=labels)
    row = measure_prediction(MetricsConfig(bootstrap=0, spacing=configured), (), BINARY, given, cleaned)
    assert (row.spacing, row.unit) == (spacing, unit)
