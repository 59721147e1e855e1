import numpy as np
import pytest
import torch

import segmeter.training.step as step_module
import segmeter.training.validation as validator
from segmeter import files
from segmeter.errors import ConfigError, RunError
from segmeter.losses.config import DiceConfig, FocalConfig, build_loss
from segmeter.models.checkpoint import WEIGHTS, read_checkpoint
from segmeter.models.config import UnetConfig
from segmeter.models.segmenter import build_segmenter
from segmeter.models.weights import load_tensors
from segmeter.records import read_json_lines
from segmeter.training.config import AdamWConfig, ConstantConfig
from segmeter.training.trainer import train
from segmeter.training.validation import Validation
from tests.models.parts import make_card
from tests.training.tiny import SPEC, TinyCases, TinySource, tiny_job, tiny_segmenter


def rows(folder, *, validated):
    return [row for row in read_json_lines(folder / "history.jsonl") if ("val" in row) == validated]


def weights_of(checkpoint):
    return load_tensors(checkpoint.folder / WEIGHTS)


def test_a_real_unet_learns_with_focal_loss(tmp_path):
    torch.manual_seed(0)
    model = UnetConfig(encoder="tu-test_resnet", depth=3, decoder_channels=(8, 8, 4))
    options = {"augment": None, "precision": "bfloat16", "ema": 0.5, "log_every": 1}
    options |= {"epochs": None, "steps": 6, "validate_every": 6, "optimizer": AdamWConfig(lr=0.03)}
    segmenter = build_segmenter(make_card(SPEC, model=model))
    result = train(tiny_job(tmp_path, segmenter=segmenter, loss=build_loss(FocalConfig(), SPEC), **options))
    assert (result.steps, result.epochs, result.reason) == (6, 3.0, "steps=6")
    losses = [row["loss"] for row in rows(tmp_path, validated=False)]
    assert len(losses) == 6
    assert losses[-1] < 0.8 * losses[0]
    loaded = read_checkpoint(tmp_path).load_segmenter()
    assert loaded.card.spec == SPEC
    assert loaded(torch.zeros(1, 3, 32, 32)).shape == (1, 3, 32, 32)


def test_history_has_a_line_per_interval_and_one_per_validation(tmp_path):
    train(tiny_job(tmp_path, epochs=None, steps=5, log_every=2, schedule=ConstantConfig()))
    logged, validated = rows(tmp_path, validated=False), rows(tmp_path, validated=True)
    assert [row["step"] for row in validated] == [2, 4, 5]
    assert [(row["step"], row["epoch"]) for row in logged] == [(2, 1.0), (4, 2.0), (5, 2.5)]
    assert {row["lr"] for row in logged} == {0.01}
    assert all(row["images_per_second"] > 0 and 0 <= row["data_wait"] <= 1 for row in logged)
    assert set(logged[-1]["stages"]) == {"data", "step", "validation", "checkpoint"}
    assert {"mean_iou", "mean_dice", "pixel_accuracy", "loss", "iou/cell", "dice/edge"} <= validated[0]["val"].keys()


def test_the_history_is_on_the_disk_before_a_checkpoint_that_counts_on_its_size(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(files, "watch", lambda operation, path: done.append((operation, path.name)))
    train(tiny_job(tmp_path, epochs=1))
    written, saved = (done.index(one) for one in (("write", "history.jsonl"), ("rename", "step-00000002")))
    assert ("fsync", "history.jsonl") in done[written:saved]


def test_the_device_is_asked_once_per_line_of_the_log(tmp_path, monkeypatch):
    sizes, real = [], step_module.to_numpy
    monkeypatch.setattr(step_module, "to_numpy", lambda values: sizes.append(len(values)) or real(values))
    train(tiny_job(tmp_path, epochs=None, steps=12, log_every=4, val_cases=None, validate_every=None))
    assert [size for size in sizes if size] == [8, 8, 8]


class PoisonedLater(TinySource):
    """A case turns into NaN in the third epoch."""

    def batch(self, epoch, index, progress):
        windows = super().batch(epoch, index, progress)
        if (epoch, index) == (2, 0):
            windows.image[1, 4, 4] = np.nan
        return windows


QUIET = {"log_every": 50, "validate_every": None, "val_cases": None, "save_minutes": 1e-9}


@pytest.mark.parametrize(
    "options", [{"log_every": 1}, {"log_every": 50}, QUIET], ids=["logged", "later", "unvalidated"]
)
def test_a_loss_that_is_not_finite_stops_the_run_and_nothing_of_it_is_saved(tmp_path, options):
    cases = TinyCases()
    names = [cases.case_ids[int(index)] for index in TinySource(cases).batch(2, 0, 0.0)[2]]
    message = rf"got nan at step 5 \(lr 0\.00\d+, cases '{names[0]}', '{names[1]}'.*Earlier checkpoints stay"
    with pytest.raises(RunError, match=message):
        train(tiny_job(tmp_path, cases=cases, source=PoisonedLater(cases), **options))
    assert read_checkpoint(tmp_path / "checkpoints" / "last").progress["step"] == 4
    for link in ("last",) if options is QUIET else ("best", "last"):
        checkpoint = read_checkpoint(tmp_path / "checkpoints" / link)
        assert checkpoint.progress["step"] in (2, 4)
        assert all(value.isfinite().all() for value in weights_of(checkpoint).values())


def test_memory_that_runs_out_in_a_step_names_the_batch_and_what_to_set(tmp_path, monkeypatch):
    calls = []

    def update(parts, batches):
        calls.append(batches)
        if len(calls) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(parts, batches)

    real = step_module.update_from_batches
    monkeypatch.setattr(step_module, "update_from_batches", update)
    message = r"^training: step 3, the batch with case '.*': out of memory\. Set a smaller training.batch_size .*resume"
    with pytest.raises(RunError, match=message):
        train(tiny_job(tmp_path))
    assert read_checkpoint(tmp_path / "checkpoints" / "last").progress["step"] == 2


def test_a_model_that_overflows_in_validation_is_not_blamed_on_an_image(tmp_path):
    segmenter = tiny_segmenter()
    segmenter.network.layers[4].register_forward_hook(
        lambda module, args, output: output if module.training else output * float("inf")
    )
    with pytest.raises(RunError, match=r"output is NaN or infinite at step 2 .*lower optimizer.lr \(0.01\)") as caught:
        train(tiny_job(tmp_path, segmenter=segmenter))
    assert "image" not in str(caught.value)


def test_a_score_that_is_nan_is_never_best_and_uses_up_patience(tmp_path, monkeypatch, caplog):
    scores = iter([float("nan"), 0.5, float("nan"), float("nan"), 0.9])

    def stub(*args, **kwargs):
        return Validation(values={"mean_iou": next(scores), "loss": 1.0}), []

    monkeypatch.setattr(validator, "join_parts", stub)
    result = train(tiny_job(tmp_path, epochs=20, patience=2))
    assert (result.steps, result.score, result.reason) == (8, 0.5, "patience=2")
    best = tmp_path / "checkpoints" / "best"
    assert best.resolve().name == "step-00000004"
    assert (read_checkpoint(best).progress["metric"], read_checkpoint(best).progress["step"]) == (0.5, 4)
    assert "mean_iou is undefined at step 2" in caplog.text
    assert [row["val"]["mean_iou"] for row in rows(tmp_path, validated=True)] == [None, 0.5, None, None]


def test_classes_that_the_best_checkpoint_does_not_find_are_in_the_result(tmp_path, monkeypatch):
    found = iter([Validation(values={"mean_iou": 0.5}, unlearned=("cell",)), Validation(values={"mean_iou": 0.4})])
    monkeypatch.setattr(validator, "join_parts", lambda *args, total: (next(found), []))
    result = train(tiny_job(tmp_path, epochs=2))
    assert (result.unlearned, result.values) == (("cell",), {"mean_iou": 0.5})
    assert [row["unlearned"] for row in rows(tmp_path, validated=True)] == [["cell"], []]


@pytest.mark.parametrize(("options", "kept"), [({}, [6, 8]), ({"validate_every": None, "save_minutes": 1e-9}, [7, 8])])
def test_without_validation_there_is_no_best_and_checkpoints_come_as_often_as_asked_for(tmp_path, options, kept):
    result = train(tiny_job(tmp_path, val_cases=None, **options))
    assert (result.score, result.best) == (None, None)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["last", *(f"step-{step:08d}" for step in kept)]


def test_the_average_is_validated_and_published(tmp_path):
    segmenter = tiny_segmenter()
    train(tiny_job(tmp_path, segmenter=segmenter, ema=0.9))
    checkpoint = read_checkpoint(tmp_path / "checkpoints" / "last")
    raw, average, trained = checkpoint.load_state()["weights"], weights_of(checkpoint), segmenter.state_dict()
    assert all(torch.equal(raw[name], value) for name, value in trained.items())
    changed = [name for name in trained if not torch.equal(average[name], trained[name])]
    assert sorted(changed) == sorted(name for name in trained if "num_batches" not in name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"monitor": "iou/cel"}, r"expected `monitor` to be a score .*Did you mean 'iou/cell'\?"),
        ({"monitor": "dice/ground", "patience": 2, "validate_every": None}, "expected `patience` to be null"),
        ({"patience": 1, "val_cases": None}, "expected `patience` to be null where nothing is validated"),
        ({"device": "cuda:77"}, "expected `device`"),
        ({"freeze_encoder": 3}, "expected `freeze_encoder` to be left alone, as 'tiny' has no encoder"),
        ({"freeze_norm": "encoder"}, "expected `freeze_norm` to be left alone"),
        ({"optimizer": AdamWConfig(encoder_lr=0.5)}, "expected `encoder_lr` to be left alone"),
        ({"cases": TinyCases(count=3)}, "expected `batch_size` to leave at least one batch per epoch"),
    ],
)
def test_a_job_that_can_not_work_is_refused_before_any_work(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        train(tiny_job(tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("over", "said"), [("batch", True), ("sample", False)])
def test_accumulating_a_loss_over_the_batch_is_said(tmp_path, caplog, over, said):
    loss = build_loss(DiceConfig(over=over), SPEC)
    train(tiny_job(tmp_path, loss=loss, epochs=None, steps=1, accumulate=2, validate_every=None))
    assert ("accumulate=2 in 1 process(es) averages 2 losses" in caplog.text) is said
