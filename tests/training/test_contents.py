"""A resume is refused where the content of any file changed, and names the files."""

import hashlib
import json

import pytest

from segmeter.data.config import FolderConfig
from segmeter.data.verification.report import open_splits
from segmeter.errors import ConfigError
from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.cases import Budget, CachedDataset
from segmeter.training.data.sampling import SampleSource
from segmeter.training.job import CONTENTS, TrainData, name_changes, write_contents
from segmeter.training.trainer import train
from tests.data.crafted import noise, put
from tests.training.tiny import SPEC, TinyCases, TinySource, tiny_job


def real_job(folder, root, **changes):
    config = FolderConfig(
        root=str(root), classes=SPEC.names, ignore_index=255, colours=SPEC.colours, val_fraction=0.3, test_fraction=0
    )
    datasets, _ = open_splits(config, ["train", "val"])
    cases, val_cases = (CachedDataset(dataset, Budget(10**7)) for dataset in datasets)
    source = SampleSource(cases, AugmentConfig(), batch_size=2, seed=0)
    return tiny_job(folder, cases=cases, val_cases=val_cases, source=source, batch_size=2, **changes)


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
    assert "files that are new, gone or changed (2: " in text
    assert "/masks/c0.png" in text
    assert "/masks/c3.png" in text
    train(
        real_job(run, root, **{**resumed, "allow_changes": ("training.epochs", "data.train_cases", "data.val_cases")})
    )


def test_new_and_missing_files_are_named_and_a_lost_record_is_said(tmp_path):
    write_contents(tmp_path, data_of(TinyCases(count=3)))
    line = name_changes(tmp_path, data_of(TinyCases(count=2), TinyCases(count=1)))
    names = "2: train/images/case02.png, val/images/case00.png"
    assert line == f"resume: files that are new, gone or changed ({names})."
    assert "the files are the same, but" in name_changes(tmp_path, data_of(TinyCases(count=3)))
    (tmp_path / CONTENTS).write_text("{")
    assert "can't be read" in name_changes(tmp_path, data_of(TinyCases()))
