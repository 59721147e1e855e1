"""Evaluation and prediction, whose results cross through the ring: what is written must not depend on how.

Of an interrupted run, what is done is not predicted again, and the end is that of an uninterrupted one.
"""

import json
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from segmeter.bridge.host_copier import open_transport
from segmeter.cli.config.trained_data import describe_data
from segmeter.data.config import FolderConfig
from segmeter.data.files.geometry import Geometry
from segmeter.data.sample import Sample
from segmeter.data.verification.splits import build_dataset, open_splits
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.evaluate import measure_prediction, predict, run_cases
from segmeter.evaluation.manifest import PREDICTIONS, Entry, Manifest, parse_case_facts, read_case_facts
from segmeter.evaluation.predicted import restore_cases
from segmeter.export.config import ExportConfig
from segmeter.files import TEMPORARY, is_whole
from segmeter.inference import results as outbox
from segmeter.losses.focal import FocalLoss
from segmeter.metrics.calibration_file import summarise_calibration
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.config.measures import SurfaceConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.probabilities import Calibration
from segmeter.metrics.summary.summarise import summarise
from segmeter.postprocess.config import LargestComponentConfig, PostprocessConfig
from segmeter.postprocess.pipeline import Cleaned
from tests.bridge.fake_stream import FakeTransport
from tests.data.crafted import BINARY, folder, make_folder, noise, put
from tests.evaluation.jobs import case_run, empty, evaluated, files, interrupted, predictor
from tests.faults.world import flip
from tests.training.tiny import TinyCases, tiny_segmenter


@pytest.fixture
def stream(monkeypatch):
    transport = FakeTransport()
    monkeypatch.setattr(outbox, "open_transport", lambda device: transport)
    return transport


def test_every_file_is_the_same_with_and_without_a_stream(tmp_path, stream, monkeypatch):
    cases = TinyCases(count=7)
    evaluated(tmp_path / "stream", dataset=cases)
    assert len(stream.starts) == 4 + 7 + 7, "labels of four batches, losses and probabilities of seven cases"
    assert [row.case_id for row in read_cases(tmp_path / "stream")] == list(cases.case_ids)
    monkeypatch.setattr(outbox, "open_transport", open_transport)
    evaluated(tmp_path / "plain", dataset=cases)
    with_stream, without = files(tmp_path / "stream"), files(tmp_path / "plain")
    assert len(without) >= 2 * 7 + 3
    assert with_stream == without


@pytest.mark.usefixtures("stream")
def test_rows_files_and_losses_are_those_of_a_forward_pass_of_the_tests_own(tmp_path):
    """By PyTorch's weighted cross-entropy of each case, and of the pixels of all cases as one batch."""
    cases, segmenter, weights = TinyCases(count=5, size=6), tiny_segmenter().eval(), [1.0, 5.0, 20.0]
    loss = FocalLoss("multiclass", gamma=0, class_weights=weights, ignore_index=255)
    summary = evaluated(tmp_path, dataset=cases, loss=loss)
    samples = [cases[index] for index in range(5)]
    with torch.no_grad():
        logits = segmenter(torch.from_numpy(np.stack([sample.image for sample in samples])).permute(0, 3, 1, 2))
    target = torch.from_numpy(np.stack([sample.target for sample in samples]).astype(np.int64))
    entropy = partial(torch.nn.functional.cross_entropy, weight=torch.tensor(weights), ignore_index=255)
    each, whole = (
        [float(entropy(logits[i : i + 1], target[i : i + 1])) for i in range(5)],
        float(entropy(logits, target)),
    )
    assert summary["loss"]["dataset"] == pytest.approx(whole, rel=1e-5)
    assert summary["loss"]["mean"] == pytest.approx(np.mean(each), rel=1e-5)
    assert abs(np.mean(each) - whole) > 1e-4 * whole  # the two are told apart
    rows, records = read_cases(tmp_path), parse_case_facts(read_case_facts(tmp_path))
    assert summarise(rows, cases.spec)["loss"] == summary["loss"]
    assert [row.case_id for row in rows] == list(records) == list(cases.case_ids)
    assert [row.loss for row in rows] == pytest.approx(each, rel=1e-5)
    for found, (case_id, record) in zip(logits, records.items(), strict=True):
        labels = np.asarray(Image.open(tmp_path / "predictions/labels" / f"{case_id}.png"))
        np.testing.assert_array_equal(labels, found.argmax(0).numpy())
        probs = np.load(tmp_path / "predictions/probs" / f"{case_id}.npy")
        np.testing.assert_allclose(probs, found.softmax(0).numpy(), rtol=1e-5, atol=1e-6)
        assert record["image"] == [6, 6, 3, "float32"]
        assert list(record["files"]) == [f"labels/{case_id}.png", f"probs/{case_id}.npy"]
        assert all(is_whole(tmp_path / PREDICTIONS / name, each) for name, each in record["files"].items())


@pytest.mark.parametrize("name", ["images/b.png", "masks/b.png"])
def test_a_file_that_changed_after_the_check_is_refused_by_name(tmp_path, name):
    config = folder(make_folder(tmp_path / "data"), classes=("ground", "cell", "edge"), task="multiclass")
    (cases,), _ = open_splits(config, ["all"])
    content = noise(12, 10, 3 if "images" in name else None, seed=9)
    put(tmp_path / "data" / name, content if "images" in name else content % 2)
    with pytest.raises(DataError, match=rf"{name}.*to have the content that was checked at the start, got another"):
        evaluated(tmp_path / "run", dataset=cases)
    assert not (tmp_path / "run" / "metrics.json").exists()
    assert not (tmp_path / "run" / "cases.parquet").exists()


@pytest.mark.parametrize(
    ("split", "changes", "key"),
    [("val", {"fold": "2/2"}, "fold"), ("test", {"split_seed": 1}, "split_seed"), ("all", {"split_seed": 1}, None)],
)
def test_cases_that_are_dealt_otherwise_than_for_training_are_refused(tmp_path, split, changes, key):
    """As the command line refuses them, which looks before it reads any data."""
    trained = FolderConfig(root=str(make_folder(tmp_path, tuple("abcdefghijkl"))), classes=("a", "b", "c"), fold="1/2")
    segmenter = tiny_segmenter()
    segmenter.card = replace(segmenter.card, data=describe_data(trained))
    cases = build_dataset(trained.replace(**changes), split=split)
    run = partial(evaluated, tmp_path / "run", dataset=cases, predictor=predictor(segmenter), loss=None)
    if key is None:
        assert run()
        return
    with pytest.raises(ConfigError, match=f"`data.{key}` to be .* with data.split={split}, which else may hold cases"):
        run()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("configured", "spacing", "unit"), [(None, (2.0, 0.5), "mm"), ((3.0, 3.0), (3.0, 3.0), "")])
def test_a_row_keeps_the_spacing_of_its_file_unless_one_is_configured(configured, spacing, unit):
    labels, place = np.zeros((4, 5), np.uint8), Geometry(spacing=(2.0, 0.5), unit="mm")
    sample = Sample(case_id="a", image=labels[..., None], target=labels, geometry=place)
    cleaned = Cleaned(labels=labels, instances=None, changed={})
    given = outbox.Prediction(sample=sample, labels=labels)
    row = measure_prediction(MetricsConfig(bootstrap=0, spacing=configured), (), BINARY, given, cleaned)
    assert (row.spacing, row.unit) == (spacing, unit)


def test_calibration_is_that_of_the_exported_probabilities(tmp_path):
    cases = TinyCases(count=5)
    metrics = MetricsConfig(bootstrap=20, measures=(SurfaceConfig(),), calibration=True)
    summary = evaluated(tmp_path / "files", dataset=cases, metrics=metrics)
    sums = Calibration(num_classes=cases.spec.num_classes, task=cases.spec.task, ignore_index=cases.spec.ignore_index)
    for sample in (cases[index] for index in range(5)):
        sums.update(sample.target, np.load(tmp_path / "files/predictions/probs" / f"{sample.case_id}.npy"))
    assert summary["calibration"] == summarise_calibration(sums.compute(), cases.spec)
    assert summary["calibration"]["n"] > 0
    assert 0 < summary["calibration"]["ece"] < 1
    assert json.loads((tmp_path / "files" / "metrics.json").read_text()) == summary
    assert summary["measures"]["hd95"]
    for name, export in (("none", ExportConfig()), ("bytes", ExportConfig(probs=True, probs_dtype="uint8"))):
        found = evaluated(tmp_path / name, dataset=cases, metrics=metrics, export=export)
        assert found["calibration"] == summary["calibration"], "not of the files' rounded values"
    assert not (tmp_path / "none" / "predictions" / "probs").exists()


class Untargeted(TinyCases):
    """Images alone, as a folder to predict has them."""

    def __getitem__(self, index):
        return replace(super().__getitem__(index), target=None)


def test_predictions_are_those_of_the_network_post_processed_and_may_be_left_out(tmp_path):
    raw, cleaned = [], []
    for name, found, steps in (("raw", raw, ()), ("steps", cleaned, (LargestComponentConfig(),))):
        job = case_run(tmp_path / name, dataset=Untargeted(count=5), postprocess=PostprocessConfig(steps=steps))
        assert predict(job) == 5
        assert sorted(job.dataset.read) == list(range(5))
        files = (tmp_path / name / "predictions" / "labels" / f"{case_id}.png" for case_id in job.dataset.case_ids)
        found += [np.asarray(Image.open(file)) for file in files]
    for index in range(5):
        own = job.predictor.logits([job.dataset[index].image]).argmax(1)[0].numpy()
        np.testing.assert_array_equal(raw[index], own)
    assert any((one != other).any() for one, other in zip(raw, cleaned, strict=True))
    predict(case_run(tmp_path / "probs", dataset=Untargeted(count=5), export=ExportConfig(labels=False, probs=True)))
    assert [path.name for path in (tmp_path / "probs" / "predictions").iterdir()] == ["probs"]
    assert np.load(tmp_path / "probs" / "predictions" / "probs" / "case00.npy").shape == (3, 16, 16)


COUNT, BATCH = 11, 3


def run(folder, **changes):
    fields = {"predictor": predictor(batch_size=BATCH), "dataset": TinyCases(count=COUNT)}
    return evaluated(folder, **(fields | {"identity": {"checkpoint": "0"}} | changes))


def resume(folder, **changes):
    """Go on with a run; the cases that were read, and the summary."""
    cases = TinyCases(count=COUNT)
    summary = run(folder, dataset=cases, resume=True, **changes)
    return sorted(cases.read), summary


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    run(folder)
    return files(folder)


@pytest.mark.parametrize("after", [1, 3, 5, COUNT])
def test_an_interrupted_run_ends_with_the_same_bytes(after, clean, tmp_path):
    with interrupted(after):
        run(tmp_path)
    assert not (tmp_path / "metrics.json").exists()
    read, _ = resume(tmp_path)
    restored = COUNT - len(read)
    done = after if after == COUNT else after // BATCH * BATCH
    assert restored <= done, "files that still waited to be written are written again"
    assert read == list(range(restored, COUNT))
    assert files(tmp_path) == clean


def replace_by_a_link(path):
    path.rename(path.parents[3] / "elsewhere")
    path.symlink_to(path.parents[3] / "elsewhere")


LABELS, DAMAGES = "predictions/labels/case04.png", (empty, flip, Path.unlink, replace_by_a_link)


@pytest.mark.parametrize(
    ("finished", "name", "damage"),
    [
        *((True, name, flip) for name in ("metrics.json", "cases.csv", "cases.parquet")),
        *((finished, LABELS, damage) for finished in (True, False) for damage in DAMAGES),
    ],
)
def test_a_damaged_file_is_named_and_made_again(finished, name, damage, clean, tmp_path, caplog):
    folder = tmp_path / "run"
    with nullcontext() if finished else interrupted(7):
        run(folder)
    damage(folder / name)
    read, _ = resume(folder)
    assert "missing or damaged files are written again" in caplog.text
    assert f"(1: {name.removeprefix('predictions/')})" in caplog.text
    assert read == list(range(0 if finished else 3, COUNT)), "from its batch on, as later cases follow it"
    assert files(folder) == clean


def test_a_finished_run_is_not_done_again(tmp_path):
    summary = run(tmp_path)
    assert resume(tmp_path) == ([], summary)


def test_calibration_sees_every_case_again(tmp_path):
    metrics = MetricsConfig(bootstrap=0, calibration=True)
    whole = run(tmp_path / "whole", metrics=metrics)
    with interrupted(6):
        run(tmp_path / "resumed")
    assert resume(tmp_path / "resumed", metrics=metrics) == (list(range(COUNT)), whole)


@pytest.mark.parametrize(
    ("noted", "damaged", "kept"),
    [(0, None, 0), (1, None, 0), (2, None, 2), (3, None, 2), (5, None, 5), (5, 0, 0), (5, 1, 0), (5, 3, 2), (4, 4, 4)],
)
def test_finished_cases_stay_up_to_the_end_of_a_batch_before_the_first_damaged_one(noted, damaged, kept, tmp_path):
    """In batches of 2. What a killed process left half written goes."""
    job = case_run(tmp_path, export=ExportConfig(probs=True))
    run_cases(job, "running")
    records = parse_case_facts(read_case_facts(tmp_path))
    manifest = Manifest.begin(tmp_path, job.identity, job.dataset.case_ids)
    for case_id, record in list(records.items())[:noted]:
        manifest.add(Entry(case_id=case_id, resume_facts=record))
    manifest.close()
    left = tmp_path / PREDICTIONS / "labels" / f"{TEMPORARY}left"
    left.write_bytes(b"half")
    if damaged is not None:
        (tmp_path / PREDICTIONS / "labels" / f"case{damaged:02d}.png").unlink()
    assert restore_cases(job, manifest) == kept
    assert not left.exists()
    assert read_case_facts(manifest.folder)["case_id"].to_pylist() == list(job.dataset.case_ids[:kept])
