"""What a validation computes, says and draws, and the score at which a run ends."""

import math
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
import torch
from torch.nn import functional

from segmeter.classes import ClassSpec
from segmeter.data.files import array
from segmeter.data.folder import build_folder
from segmeter.data.sample import Sample
from segmeter.distributed.ranks import ALONE
from segmeter.errors import DataError, RunError, StopSignals
from segmeter.inference.results import Prediction
from segmeter.losses.additive import additive
from segmeter.losses.config import DiceConfig, FocalConfig, build_loss
from segmeter.losses.focal import FocalLoss
from segmeter.metrics.pixels.confusion import count_case
from segmeter.postprocess.config import SEPARATING
from segmeter.records import read_json_lines
from segmeter.training.config import TrainingConfig, monitors
from segmeter.training.data.cases import Budget, CachedDataset
from segmeter.training.trainer import train
from segmeter.training.validation import UNLEARNED, PartScores, Scored, count_objects, join_parts, score_part
from tests.data.crafted import folder as folder_of
from tests.data.crafted import noise, write_zarr
from tests.inference.parts import predictor
from tests.training.tiny import SPEC, ArrayCases, CrossEntropy, TinyCases, tiny_job, tiny_segmenter


def part_of(run, cases, loss, *, pictures=0, on_case=lambda done: None):
    settings = SimpleNamespace(steps=(), training=TrainingConfig(pictures=pictures))
    job = SimpleNamespace(data=SimpleNamespace(val_cases=cases), settings=settings, world=ALONE, draw=pictures > 0)
    learner = SimpleNamespace(predictor=run, validation_loss=additive(loss, cases.spec), published=torch.nn.Module())
    return score_part(job, learner, stop=StopSignals(), on_case=on_case)


def validate(run, cases, loss, **options):
    return join_parts([part_of(run, cases, loss, **options)], cases.spec, total=len(cases))[0]


def test_scores_of_a_validation_are_those_of_all_pixels_together():
    cases, segmenter, seen = TinyCases(count=5), tiny_segmenter(), []
    values = validate(predictor(segmenter, batch_size=2), cases, CrossEntropy(), on_case=seen.append).values
    assert seen == [1, 2, 3, 4, 5]
    segmenter.eval()
    table, all_logits, all_targets = np.zeros((3, 3), int), [], []
    for sample in (cases[index] for index in range(5)):
        with torch.no_grad():
            logits = segmenter(torch.from_numpy(sample.image).permute(2, 0, 1)[None])
        target = torch.from_numpy(sample.target)[None].long()
        all_logits.append(logits)
        all_targets.append(target)
        counted = target != 255
        np.add.at(table, (target[counted], logits.argmax(1)[counted]), 1)
    iou = np.diag(table) / (table.sum(0) + table.sum(1) - np.diag(table))
    assert values["mean_iou"] == pytest.approx(iou.mean(), rel=1e-12)
    assert values["iou/cell"] == pytest.approx(iou[1], rel=1e-12)
    assert values["pixel_accuracy"] == pytest.approx(np.trace(table) / table.sum(), rel=1e-12)
    whole = functional.cross_entropy(torch.cat(all_logits), torch.cat(all_targets), ignore_index=255)
    assert values["loss"] == pytest.approx(float(whole), rel=1e-6)
    assert set(values) == set(monitors(SPEC))


def test_a_part_that_is_divided_by_a_number_is_averaged_over_the_cases():
    segmenter = tiny_segmenter().eval()
    for parameter in segmenter.parameters():
        torch.nn.init.zeros_(parameter)
    cases = ArrayCases(SPEC, [replace(TinyCases()[index], target=np.ones((16, 16), np.uint8)) for index in range(3)])
    found = validate(predictor(segmenter), cases, FocalLoss("multiclass", gamma=0.0, normalizer=8.0))
    assert found.values["loss"] == pytest.approx(16 * 16 * math.log(3) / 8)


def test_shares_are_added_up_in_the_order_of_the_cases():
    """Sums of floats depend on it. Mutation seen to fail: in the order of the processes."""
    counts = np.eye(3, dtype=np.int64)
    cases = [Scored(index=i, counts=counts, terms=np.array([[sums, 1.0]])) for i, sums in enumerate((1e17, -1e17, 3.0))]
    expected, _ = join_parts([PartScores(scored=cases)], SPEC, total=3)
    assert expected.values["loss"] == 1.0
    assert join_parts([PartScores(scored=cases[::2]), PartScores(scored=cases[1::2])], SPEC, total=3)[0] == expected
    for seen in ([cases, cases[:1]], [cases[:2]]):  # as where processes see different files
        with pytest.raises(RunError, match=r"expected one score of each case, got . scores of . of 3 cases"):
            join_parts([PartScores(scored=each) for each in seen], SPEC, total=3)


def test_a_case_without_a_mask_is_refused_by_name():
    run, samples = predictor(tiny_segmenter()), [TinyCases()[index] for index in range(4)]
    samples[2] = replace(samples[2], target=None)
    with pytest.raises(DataError, match="case02: has no mask") as error:
        validate(run, ArrayCases(SPEC, samples), CrossEntropy())
    assert error.tb, "whose frames hold what was predicted"
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("read")]
    with pytest.raises(DataError, match="no case to validate on"):
        validate(run, TinyCases(count=0), CrossEntropy())


def test_classes_that_the_targets_hold_and_that_are_not_found_are_named():
    """An IoU of 1 / 100 is found, and of 1 / 101 is not; the last targets hold no edge."""
    found, missed, absent = (
        [[500, 0, 0], [99, 1, 0], [98, 0, 2]],
        [[500, 1, 0], [99, 1, 0], [98, 0, 2]],
        [[500, 1, 0], [99, 1, 0], [0, 0, 0]],
    )
    assert UNLEARNED == 1 / 100
    for counts, unlearned in ((found, ()), (missed, ("cell",)), (absent, ("cell",))):
        scored = [Scored(index=0, counts=np.array(counts), terms=np.ones((1, 2)))]
        assert join_parts([PartScores(scored=scored)], SPEC, total=1)[0].unlearned == unlearned


@pytest.fixture
def large_set(tmp_path, monkeypatch):
    """Three cases, two of which are larger than memory: a TIFF file of many pixels and a Zarr folder."""
    monkeypatch.setattr(array, "STREAMED_PIXELS", 100 * 100)
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for name, size in (("a", (150, 170)), ("b", (90, 80)), ("c", (64, 70))):
        image = noise(*size, 3, seed=size[0])
        mask = noise(*size, None, seed=size[1]) % 3
        mask[:5] = 255
        if name == "c":
            write_zarr(tmp_path / "images" / "c.zarr", image, "yxc", chunks=(32, 32, 3))
            write_zarr(tmp_path / "masks" / "c.zarr", mask, "yx", chunks=(32, 32))
        else:
            tifffile.imwrite(tmp_path / "images" / f"{name}.tif", image, tile=(32, 32))
            tifffile.imwrite(tmp_path / "masks" / f"{name}.tif", mask, tile=(32, 32))
    config = folder_of(tmp_path, task="multiclass", classes=SPEC.names, ignore_index=255)
    return replace(build_folder(config, split="all"), streams=True)


def test_cases_larger_than_memory_are_validated_by_rows_with_the_same_scores(large_set, monkeypatch):
    """And whole where a loss needs whole maps. Mutation seen to fail: the loss of the large cases left out."""
    samples, run = [large_set[index] for index in range(3)], predictor(tiny_segmenter(), tile=64, overlap=0.25)
    loss = build_loss(FocalConfig(class_weights=(0.2, 3.0, 11.0)), large_set.spec)
    whole = validate(run, ArrayCases(large_set.spec, samples), loss)
    read = type(large_set).__getitem__
    monkeypatch.setattr(type(large_set), "__getitem__", lambda self, index: read(self, index) if index == 1 else 1 / 0)
    cases = CachedDataset(large_set, Budget(10**9))
    part = part_of(run, cases, loss, pictures=2)
    found, shown = join_parts([part], cases.spec, total=len(cases))
    seen = {prediction.sample.case_id: prediction for prediction in shown}
    assert cases.large_cases == {0, 2}
    assert found.values.pop("loss") == pytest.approx(whole.values.pop("loss"), rel=1e-6)
    assert found == whole
    assert [each.index for each in part.scored] == [1, 0, 2]
    assert list(seen) == ["a", "c"]
    np.testing.assert_array_equal(seen["a"].sample.image, samples[0].image)
    np.testing.assert_array_equal(seen["a"].sample.target, samples[0].target)
    assert seen["a"].labels.shape == (150, 170)
    monkeypatch.undo()
    dice = build_loss(DiceConfig(over="sample"), large_set.spec)
    whole = validate(run, ArrayCases(large_set.spec, samples), dice)
    assert validate(run, CachedDataset(large_set, Budget(0)), dice) == whole


def test_objects_of_all_cases_together_give_pq():
    """A case with both objects found, and one with two that are merged (IoU 1/2, no match): 2 / (2 + 1/2 + 2/2)."""
    spec = ClassSpec(task="binary", names=("none", "cell"), colours=((0, 0, 0), (9, 9, 9)))
    instances = np.zeros((4, 12), np.uint16)
    instances[:, 1:5], instances[:, 5:9] = 1, 2
    labels, sure = (instances > 0).astype(np.uint8), np.where(instances > 0, 0.99, 0.0)[None].astype(np.float32)
    apart = sure.copy()
    apart[..., 4:6] = 0.8
    scored = []
    for index, probs in enumerate((apart, sure)):
        sample = Sample(case_id=str(index), image=labels[..., None], target=labels, instances=instances)
        prediction = Prediction(sample=sample, labels=labels, probs=probs)
        objects = count_objects(prediction, SEPARATING, spec)
        scored.append(
            Scored(index=index, counts=count_case(labels, labels, spec), terms=np.ones((1, 2)), objects=objects)
        )
    values = join_parts([PartScores(scored=scored)], spec, total=2)[0].values
    assert values["pq/cell"] == pytest.approx(2 / 3.5, rel=1e-12)
    assert set(values) == set(monitors(spec, objects=True))


@pytest.mark.parametrize(("monitor", "least"), [("mean_iou", 0.5), ("loss", 0.9)])
def test_a_run_ends_at_the_score_that_was_asked_for_which_is_the_lowest_of_a_loss(tmp_path, monitor, least):
    result = train(tiny_job(tmp_path, epochs=50, stop_at=least, monitor=monitor))
    scores = [row["val"][monitor] for row in read_json_lines(tmp_path / "history.jsonl") if "val" in row]
    reached = [score <= least if monitor == "loss" else score >= least for score in scores]
    assert (result.reason, result.score) == (f"stop_at={least}", scores[-1])
    assert reached == [False] * (len(scores) - 1) + [True]
