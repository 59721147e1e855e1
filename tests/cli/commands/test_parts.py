"""The parts that several commands need: devices, threads of resumed runs, identities, shards, cards."""

import logging
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from segmeter.cli.commands import _parts
from segmeter.cli.commands import eval as evaluating
from segmeter.cli.commands._parts import keep_threads, model_card, prepare_device
from segmeter.cli.config.model_command_configs import EvalConfig
from segmeter.data.config import CamvidConfig
from segmeter.data.verification.splits import build_dataset, check_dataset
from segmeter.errors import DataError
from segmeter.evaluation.manifest import SCHEMA
from segmeter.models.config import UnetConfig
from tests.data.crafted import folder, make_folder, put

CPU = torch.device("cpu")
FACTS = {"checkpoint_sha256": "abc", "data": "def", "trained": {"step": 3}}


def test_a_cpu_keeps_the_memory_that_it_frees_and_each_process_takes_a_gpu_of_its_own(monkeypatch):
    kept: list[int] = []
    monkeypatch.setattr(_parts, "keep_freed_memory", lambda: kept.append(1))
    assert prepare_device("cpu", 3) == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert prepare_device("auto") == torch.device("cuda")
    assert prepare_device("cuda", 1) == torch.device("cuda", 1)
    assert kept == [1], "the CPU alone"


def test_a_resumed_run_keeps_its_threads_where_it_names_any_and_runs_on_a_cpu(tmp_path, caplog):
    """The last bits of a CPU's results depend on their number."""

    def resumed(**identity) -> Path:
        content = {"schema": SCHEMA, "state": "running", "identity": identity, "cases": {}}
        return put(tmp_path / "manifest.json", content).parent

    before = torch.get_num_threads()
    keep_threads(CPU, None)
    keep_threads(CPU, resumed())
    keep_threads(torch.device("cuda"), resumed(threads=before + 1))
    assert (torch.get_num_threads(), caplog.records) == (before, [])
    try:
        keep_threads(CPU, resumed(threads=before + 1))
        said = f"resume: {before + 1} threads, as the run began with, not {before}."
        assert caplog.record_tuples == [(_parts.__name__, logging.WARNING, said)]
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


identify_run = partial(evaluating.identify_run, precision="float32")


def evaluated(root="a", **data):
    groups = {"loss": {"name": "dice"}, "export": {"workers": 2}, "launch": {"name": "local"}}
    groups |= {name: {} for name in ("metrics", "report", "inference", "postprocess")}
    return EvalConfig(checkpoint=Path("net"), data=CamvidConfig(root=root, **data), **groups)


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
    on_gpu = identify_run(evaluated(), FACTS, torch.device("cuda:1"))  # where threads decide nothing
    assert (first["threads"], on_gpu["device"], "threads" in on_gpu) == (torch.get_num_threads(), "cuda:1", False)


def test_what_a_table_of_slices_holds_decides_results(tmp_path):
    """Mutation seen to fail: an evaluation's identity without its tables."""
    table = tmp_path / "slices.csv"
    sliced = evaluated().replace(metrics={"slices": str(table), "slice_by": ["site"]})
    table.write_text("case_id,site\na,x\n")
    first = identify_run(sliced, FACTS, CPU)
    assert first == identify_run(sliced, FACTS, CPU)
    table.write_text("case_id,site\na,y\n")
    assert identify_run(sliced, FACTS, CPU) != first


@pytest.fixture
def seen(tmp_path):
    config = folder(make_folder(tmp_path), clip=(1, 99))
    return config, check_dataset(build_dataset(config, split="all"), use_cache=False)


def test_a_card_says_what_the_training_split_holds(seen):
    config, report = seen
    card = model_card(config.replace(mean="auto", std="auto"), UnetConfig(encoder="tu-test_resnet"), report)
    images = np.stack([np.asarray(Image.open(pair.image)) for pair in build_dataset(config, split="all").pairs]) / 255
    low, high = np.array(card.clip).T
    cut = np.clip(images, low, high)
    np.testing.assert_allclose(card.mean, cut.mean((0, 1, 2)), atol=0.02)  # as between percentiles it is an estimate
    np.testing.assert_allclose(card.std, cut.std((0, 1, 2)), atol=0.02)
    assert (card.model["encoder"], card.spec, card.in_channels) == ("tu-test_resnet", config.spec(), 3)
    assert card.class_pixels == tuple(report.class_pixels.tolist())
    assert (card.data["name"], "root" in card.data) == ("folder", False)


def test_a_normalisation_that_does_not_fit_the_images_is_refused(seen):
    config, report = seen
    with pytest.raises(DataError, match="mean"):
        model_card(config.replace(mean=(90.0,) * 3, std=(1.0,) * 3), SimpleNamespace(), report)
