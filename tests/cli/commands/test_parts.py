"""The parts that several commands need: devices, threads of resumed runs, identities, shards, cards."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from segmeter.cli.commands import _parts
from segmeter.cli.commands import eval as evaluating
from segmeter.cli.commands._parts import keep_threads, model_card, open_device
from segmeter.cli.config.model_schema import EvalConfig, PredictConfig
from segmeter.data.config import CamvidConfig
from segmeter.data.verification.report import build_dataset, check_dataset
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.manifest import SCHEMA
from segmeter.models.config import UnetConfig
from tests.data.crafted import folder, make_folder

CPU = torch.device("cpu")
FACTS = {"checkpoint_sha256": "abc", "data": "def", "trained": {"step": 3}}


@pytest.fixture
def kept(monkeypatch):
    """How often the process was told to keep freed memory."""
    calls = []
    monkeypatch.setattr(_parts, "keep_freed_memory", lambda: calls.append(1))
    return calls


def test_a_cpu_keeps_the_memory_that_it_frees(kept):
    assert open_device("cpu", 3) == CPU
    assert kept == [1]


def test_each_process_of_a_machine_takes_a_gpu_of_its_own(kept, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert open_device("auto") == torch.device("cuda")
    assert open_device("cuda", 1) == torch.device("cuda", 1)
    assert kept == []
    with pytest.raises(ConfigError, match="`device` to be here, got 'cuda:2', with 2 GPUs found"):
        open_device("auto", 2)


def put_manifest(path: Path, **identity) -> Path:
    content = {"schema": SCHEMA, "state": "running", "identity": identity, "cases": {}}
    (path / "manifest.json").write_text(json.dumps(content))
    return path


def test_a_resumed_run_keeps_its_threads(tmp_path, caplog):
    """The last bits of a CPU's results depend on their number."""
    before = torch.get_num_threads()
    try:
        keep_threads(CPU, put_manifest(tmp_path, threads=before + 1))
        assert torch.get_num_threads() == before + 1
        expected = f"resume: {before + 1} threads, as the run began with, not {before}."
        assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [expected]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_threads_stay_where_nothing_asks_for_others(device, tmp_path, caplog):
    before = torch.get_num_threads()
    keep_threads(CPU, None)
    keep_threads(CPU, put_manifest(tmp_path))
    keep_threads(torch.device("cuda"), put_manifest(tmp_path, threads=before + 1))
    assert (torch.get_num_threads(), caplog.records) == (before, [])


def identify_run(config, facts, device, precision="float32"):
    return evaluating.identify_run(config, facts, device, precision=precision)


def evaluated(root="a", **data):
    return EvalConfig(
        checkpoint=Path("net"),
        data=CamvidConfig(root=root, **data),
        loss={"name": "dice"},
        metrics={},
        report={},
        inference={},
        export={"workers": 2},
        postprocess={},
        launch={"name": "local"},
    )


def test_an_identity_is_all_that_decides_results_and_nothing_else():
    """Where data lie decides nothing, nor how fast they are written. Mutation seen to fail: the root kept."""
    first = identify_run(evaluated("a", verify="always"), FACTS, CPU)
    second = identify_run(evaluated("b").replace(export={"queue_mb": 7}), FACTS, CPU)
    assert first == second
    assert set(first) == {
        *("data", "loss", "inference", "export", "postprocess", "metrics", "tables"),
        *("files", "device", "precision", "threads", "segmeter"),
    }
    assert first["files"] == {"checkpoint_sha256": "abc", "data": "def"}
    for changed in (
        identify_run(evaluated("a", split="val"), FACTS, CPU),
        identify_run(evaluated(), {**FACTS, "data": "other"}, CPU),
        identify_run(evaluated().replace(loss={"name": "focal"}), FACTS, CPU),
        identify_run(evaluated(), FACTS, torch.device("cuda:1")),
        identify_run(evaluated(), FACTS, CPU, precision="bfloat16"),
    ):
        assert changed != first


def test_what_a_table_of_slices_holds_decides_results(tmp_path):
    """Mutation seen to fail: an evaluation's identity without its tables."""
    table = tmp_path / "slices.csv"
    sliced = evaluated().replace(metrics={"slices": str(table), "slice_by": ["site"]})
    table.write_text("case_id,site\na,x\n")
    first = identify_run(sliced, FACTS, CPU)
    assert first == identify_run(sliced, FACTS, CPU)
    table.write_text("case_id,site\na,y\n")
    assert identify_run(sliced, FACTS, CPU) != first


def test_a_command_without_a_loss_has_an_identity_without_one():
    groups = {name: {} for name in ("data", "inference", "export", "postprocess", "report")}
    config = PredictConfig(checkpoint=Path("net"), input=Path("images"), launch={"name": "local"}, **groups)
    assert not {"loss", "metrics"} & set(identify_run(config, FACTS, CPU))


def test_a_shard_is_every_nth_batch_and_says_of_what_it_is_a_part(tmp_path, caplog):
    data = build_dataset(folder(make_folder(tmp_path, tuple("abcde"))), split="all")
    part, batches, said = evaluating.take_shard(data, "2/2", batch_size=2)
    assert part.case_ids == ("c", "d")
    assert batches == [1, 1]
    assert (said["shard"]["shard"], said["shard"]["cases"]) == ("2/2", 5)
    assert caplog.messages == ["shard 2/2: 2 of 5 cases; `segmeter merge` joins the shards."]
    with pytest.raises(ConfigError, match="at most 3 shards, as there are 3 batches of up to 2 images of one size"):
        evaluating.take_shard(data, "1/4", batch_size=2)


@pytest.fixture
def seen(tmp_path):
    config = folder(make_folder(tmp_path), clip=(1, 99))
    return config, check_dataset(build_dataset(config, split="all"), use_cache=False)


def test_a_card_says_what_the_training_split_holds(seen):
    config, report = seen
    card = model_card(config.replace(mean="auto", std="auto"), UnetConfig(encoder="tu-test_resnet"), report)
    images = np.stack([_image(pair) for pair in build_dataset(config, split="all").pairs]) / 255
    low, high = np.array(card.clip).T
    cut = np.clip(images, low, high)
    np.testing.assert_allclose(card.mean, cut.mean((0, 1, 2)), atol=0.02)  # as between percentiles it is an estimate
    np.testing.assert_allclose(card.std, cut.std((0, 1, 2)), atol=0.02)
    assert (card.model["encoder"], card.spec, card.in_channels) == ("tu-test_resnet", config.spec(), 3)
    assert card.class_pixels == tuple(report.class_pixels.tolist())
    assert (card.data["name"], "root" in card.data) == ("folder", False)


def _image(pair):
    from PIL import Image

    return np.asarray(Image.open(pair.image))


def test_a_normalisation_that_does_not_fit_the_images_is_refused(seen):
    config, report = seen
    with pytest.raises(DataError, match="mean"):
        model_card(config.replace(mean=(90.0,) * 3, std=(1.0,) * 3), SimpleNamespace(), report)


def test_threads_decide_the_results_of_a_cpu_alone():
    assert identify_run(evaluated(), FACTS, CPU)["threads"] == torch.get_num_threads()
    found = identify_run(evaluated(), FACTS, torch.device("cuda:1"))
    assert (found["device"], "threads" in found) == ("cuda:1", False)
