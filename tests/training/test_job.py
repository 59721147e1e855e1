"""What makes a resume the same run: the values that decide what is learned, and the content of every file."""

import hashlib
import json

import pytest
import torch

from segmeter.data.verification.splits import open_splits
from segmeter.distributed.ranks import World
from segmeter.errors import ConfigError
from segmeter.training import job
from segmeter.training.config import SgdConfig
from segmeter.training.data.cases import Budget, CachedDataset
from segmeter.training.job import CONTENTS, TrainData, check_job, check_same, contents, identify, name_changes
from segmeter.training.trainer import train
from tests.data.crafted import folder as folder_of
from tests.data.crafted import noise, put
from tests.training.tiny import SPEC, TinyCases, TinySource, changed, tiny_job, tiny_segmenter


def test_identity_is_flat_and_holds_what_decides_what_is_learned(tmp_path):
    tiny = tiny_job(tmp_path, identity={"loss": {"name": "focal", "alpha": (0.25, 0.5)}, "data": {"root": "/a"}})
    identity = identify(tiny)
    assert identity["loss.alpha"] == [0.25, 0.5]
    assert identity["model.spec.names"] == ["ground", "cell", "edge"]
    assert identity["data.train_cases"] == "10 cases, sha256 10-0-00000000000"
    assert identity["training.batch_size"] == 4
    assert not {"training.workers", "training.log_every", "data.root"} & identity.keys()


def test_what_only_changes_speed_may_differ_and_keys_that_went_or_came_have_the_value_of_runs_without_them(tmp_path):
    before = identify(tiny_job(tmp_path)) | {"data.ignore_rim": 0}  # of an earlier version
    with pytest.raises(ConfigError, match=r"`data\.ignore_rim` was 2"):
        check_same(tiny_job(tmp_path), before | {"data.ignore_rim": 2})
    free = {"workers": 7, "keep": 3, "cache_gb": 0.5}
    check_same(tiny_job(tmp_path, identity={"data": {"root": "/moved", "corners": "edges"}}, **free), before)
    with pytest.raises(ConfigError, match=r"`data\.corners` was 'edges' and is 'centres' now"):
        check_same(tiny_job(tmp_path, identity={"data": {"corners": "centres"}}), before)


def test_the_device_and_what_precision_means_on_it_are_part_of_the_identity(tmp_path, monkeypatch):
    """A run moved from a machine with bfloat16 to one without goes on in float16 where `precision` is auto."""
    auto = tiny_job(tmp_path, precision="auto")
    monkeypatch.setattr(job, "pick_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(job, "pick_training_dtype", lambda device, precision: torch.bfloat16)
    before = identify(auto)
    assert (before["device"], before["training.precision.resolved"]) == ("cuda", "bfloat16")
    monkeypatch.setattr(job, "pick_training_dtype", lambda device, precision: torch.float16)
    with pytest.raises(ConfigError) as caught:
        check_same(changed(auto), before)
    assert caught.value.problems[0] == "resume: `training.precision.resolved` was 'bfloat16' and is 'float16' now."
    check_same(changed(auto, allow_changes=("training.precision",)), before)


def test_every_difference_is_one_line_and_keys_that_came_or_went_are_differences(tmp_path):
    before = identify(tiny_job(tmp_path, identity={"loss": {"name": "dice"}}))
    now = tiny_job(tmp_path, optimizer=SgdConfig(lr=0.01), val_cases=None)
    with pytest.raises(ConfigError) as caught:
        check_same(now, before)
    keys = [line.split("`")[1] for line in caught.value.problems[:-1] if " was " in line]
    assert keys == sorted(keys)
    assert {"data.val_cases", "loss.name", "optimizer.name", "optimizer.beta1", "optimizer.momentum"} <= set(keys)
    assert "optimizer.lr" not in keys
    assert "resume: `loss.name` was 'dice' and is None now." in caught.value.problems
    assert f"with 'allow_changes=[{','.join(keys)}]'." in caught.value.problems[-1]


def test_a_group_that_is_allowed_to_change_stands_for_its_keys_alone(tmp_path):
    before = identify(tiny_job(tmp_path))
    now = tiny_job(tmp_path, optimizer=SgdConfig())
    check_same(changed(now, allow_changes=("optimizer",)), before)
    with pytest.raises(ConfigError, match=r"optimizer\.beta1"):
        check_same(changed(now, allow_changes=("opt",)), before)


def test_synchronised_batch_norm_is_refused_in_processes_on_the_cpu(tmp_path):
    """torch has it for GPUs only, and says so in the first step."""
    segmenter = tiny_segmenter()
    segmenter.network = torch.nn.SyncBatchNorm.convert_sync_batchnorm(segmenter.network)
    check_job(tiny_job(tmp_path, segmenter=segmenter))
    with pytest.raises(ConfigError, match=r"`model` to have a model\.norm other than sync in processes on the CPU"):
        check_job(tiny_job(tmp_path, segmenter=segmenter, world=World(0, 2)))


def real_job(folder, root, **changes):
    data = {"classes": SPEC.names, "ignore_index": 255, "val_fraction": 0.3, "test_fraction": 0}
    datasets, _ = open_splits(folder_of(root, task="multiclass", **data), ["train", "val"])
    cases, val_cases = (CachedDataset(dataset, Budget(10**7)) for dataset in datasets)
    return tiny_job(folder, cases=cases, val_cases=val_cases, **changes)


def data_of(cases, val_cases=None):
    return TrainData(source=TinySource(cases), train_cases=cases, val_cases=val_cases)


def test_the_hash_of_every_file_is_recorded_and_a_resume_on_inverted_masks_is_refused_by_name(tmp_path):
    run, root = tmp_path / "run", tmp_path / "data"
    run.mkdir()
    for seed in range(8):
        put(root / "images" / f"c{seed}.png", noise(16, 16, seed=seed))
        put(root / "masks" / f"c{seed}.png", noise(16, 16, None, seed=seed + 50) % 3)
    train(real_job(run, root, epochs=1))
    record = json.loads((run / CONTENTS).read_bytes())
    assert record.keys() == {"train", "val"}
    assert {**record["train"], **record["val"]} == {
        f"{path.parent.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.glob("*/*.png"))
    }
    resumed = {"epochs": 2, "resume": True, "allow_changes": ("training.epochs",)}
    for path in (root / "masks").iterdir():  # written anew, with equal bytes
        path.write_bytes(path.read_bytes())
    train(real_job(run, root, **resumed))
    for seed in (0, 3):
        put(root / "masks" / f"c{seed}.png", 2 - noise(16, 16, None, seed=seed + 50) % 3)
    with pytest.raises(ConfigError) as refusal:
        train(real_job(run, root, **resumed))
    text = "\n".join(refusal.value.problems)
    assert all(each in text for each in ("new, gone or changed (2: ", "/masks/c0.png", "/masks/c3.png"))
    train(real_job(run, root, **resumed | {"allow_changes": ("training.epochs", "data")}))


def test_new_and_missing_files_are_named_and_a_lost_record_is_said(tmp_path):
    (tmp_path / CONTENTS).write_text(json.dumps(contents(data_of(TinyCases(count=3)))))
    line = name_changes(tmp_path, data_of(TinyCases(count=2), TinyCases(count=1)))
    names = "2: train/images/case02.png, val/images/case00.png"
    assert line == f"resume: files that are new, gone or changed ({names})."
    assert "the files are the same, but" in name_changes(tmp_path, data_of(TinyCases(count=3)))
    (tmp_path / CONTENTS).write_text("{")
    assert "can't be read" in name_changes(tmp_path, data_of(TinyCases()))
