"""eval takes the data's description from its checkpoint: command line > checkpoint > default."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from segmeter.cli.app import compose_and_validate
from segmeter.cli.config.compose import Request
from segmeter.cli.config.model_command_configs import EvalConfig, ImagesConfig
from segmeter.cli.config.trained_data import describe_data, own_data
from segmeter.data.config import CamvidConfig, CellsConfig, DataConfig, FolderConfig, InstancesConfig
from segmeter.errors import ConfigError
from segmeter.models.checkpoint import write_checkpoint
from segmeter.models.config import ModelCard
from segmeter.models.segmenter import build_segmenter
from tests.data.crafted import put
from tests.models.parts import TINY

NUCLEI = FolderConfig(
    root="gone", task="binary", classes=("background", "nucleus"), label_map={"0": 0, "255": 1}, in_channels=1,
    masks="drawn", mask_suffix="_mask", max_pixels=9, allow_links=True,
)  # fmt: skip
FOLDER = ["data=folder", "data.root=/other"]


def write_run(
    folder: Path, config: DataConfig, *, root: str | None = "/data/nuclei", data: dict[str, Any] | None = None
) -> Path:
    torch.manual_seed(0)
    n = config.in_channels
    card = ModelCard(
        model=dict(TINY), spec=config.spec(), in_channels=n, mean=(0.5,) * n,
        std=(0.25,) * n, data=describe_data(config) if data is None else data,
    )  # fmt: skip
    (folder / "checkpoints").mkdir(parents=True)
    state, best = build_segmenter(card).state_dict(), folder / "checkpoints" / "best"
    write_checkpoint(best, segmenter_state=state, card=card, state=None, progress={})
    if root:
        put(folder / "run.json", {"data_root": root})
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run") / "nuclei", NUCLEI)


def composed(*overrides: str) -> EvalConfig:
    ((_, config),) = compose_and_validate("eval", Request("eval", overrides))
    return config


def problems_of(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        compose_and_validate("eval", Request("eval", overrides))
    return list(caught.value.problems)


def test_a_checkpoint_alone_is_enough_but_for_the_limits_on_files(run: Path) -> None:
    data = composed(f"checkpoint={run}").data
    assert isinstance(data, FolderConfig)
    assert (data.root, data.split, data.masks, data.mask_suffix) == ("/data/nuclei", "test", "drawn", "_mask")
    assert (data.task, data.classes, data.in_channels) == ("binary", ("background", "nucleus"), 1)
    assert (data.label_map, data.mean, data.std) == ({"0": 0, "255": 1}, (0.5,), (0.25,))
    assert (data.max_pixels, data.allow_links) == (200_000_000, False)
    text = (run / "checkpoints" / "best" / "manifest.json").read_text()
    assert "gone" not in text, "no folder of the machine it was trained on"
    assert "root" not in json.loads(text)["card"]["data"]


def test_a_setting_that_is_gone_is_left_out_where_it_changed_nothing(tmp_path: Path) -> None:
    """Checkpoints of 0.1 have it. Mutation seen to fail: a fault in export, and eval refused."""
    cells = CellsConfig()
    paths = [
        write_run(tmp_path / str(rim), cells, root=str(tmp_path), data={**describe_data(cells), "ignore_rim": rim})
        for rim in (0, 2)
    ]
    assert isinstance(composed(f"checkpoint={paths[0]}").data, CellsConfig)
    assert isinstance(own_data(paths[0], ImagesConfig()), CellsConfig)
    assert any("unknown key 'data.ignore_rim'" in line for line in problems_of(f"checkpoint={paths[1]}"))
    with pytest.raises(ConfigError, match="unknown key 'ignore_rim'"):
        own_data(paths[1], ImagesConfig())


@pytest.mark.parametrize("choice", [[], ["data=folder"]], ids=["checkpoint", "folder"])
def test_what_is_set_goes_first(run: Path, choice: list[str]) -> None:
    changed = ["data.root=/other", "data.split=val", "data.label_map={7: 1}", "data.mask_suffix=_seg", "data.lists=s"]
    data = composed(f"checkpoint={run}", *choice, *changed[:2], f"++{changed[2]}", *changed[3:]).data
    assert (data.root, data.split, data.mask_suffix, data.lists) == ("/other", "val", "_seg", "s")
    assert data.label_map["7"] == 1
    assert (data.masks, data.classes) == ("drawn", ("background", "nucleus"))
    assert composed(f"checkpoint={run}", *FOLDER, "data.masks=masks").data.masks == "masks", "the default, but set"


@pytest.mark.parametrize(("override", "message"), [
    ("data.clip=[1,99]", "`data.clip` to be the checkpoint's None, got [1, 99]. Leave it out."),
    ("data.task=multiclass", "`data.task` to be the checkpoint's binary, got multiclass. Leave it out."),
    ("data.classes=[a,b]", "`data.classes` to be the checkpoint's ['background', 'nucleus'], got ['a', 'b']"),
    ("data.in_channels=3", "`data.in_channels` to be the checkpoint's 1, got 3."),
    ("data.mean=[0.1]", "`data.mean` to be the checkpoint's [0.5], got [0.1]."),
])  # fmt: skip
def test_contradictions_are_refused_by_name(run: Path, override: str, message: str) -> None:
    choice = FOLDER if "channels" in override or "mean" in override else []
    (problem,) = problems_of(f"checkpoint={run}", *choice, override)
    assert problem.startswith(f"eval: expected {message}")


def test_a_data_set_with_classes_of_its_own_keeps_them_unless_the_model_was_trained_on_it(run, tmp_path):
    problems = problems_of(f"checkpoint={run}", "data=camvid", "data.root=/other")
    assert [line.split("`")[1] for line in problems] == ["data.task", "data.classes", "data.in_channels"]
    roads = write_run(tmp_path / "roads", CamvidConfig(root="x", lists="lists", ignore_index=None))
    data = composed(f"checkpoint={roads}", "data=camvid", "data.root=/other").data
    assert (data.lists, data.ignore_index, data.root) == ("lists", None, "/other")


def test_a_checkpoint_without_its_run_or_its_data_asks_for_them(tmp_path: Path) -> None:
    alone = write_run(tmp_path / "alone", NUCLEI, root=None)
    assert problems_of(f"checkpoint={alone}") == ["config: `data.root` is required. Set data.root=VALUE."]
    assert composed(f"checkpoint={alone}", "data.root=/other").data.masks == "drawn"
    old = write_run(tmp_path / "old", NUCLEI, data={})
    (problem,) = problems_of(f"checkpoint={old}")
    told = "eval: this checkpoint does not say which data it was trained on. Choose it: data=camvid |"
    assert problem.startswith(told)
    assert composed(f"checkpoint={old}", *FOLDER).data.classes == ("background", "nucleus")


@pytest.fixture(scope="module")
def folds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("folds")
    return [write_run(root / f"fold{n}", NUCLEI.replace(fold=f"{n}/5", group_until="_")) for n in (1, 2)]


def test_its_own_fold_is_evaluated_and_every_checkpoint_must_have_it(folds: list[Path], run: Path) -> None:
    data = composed(f"checkpoint={folds[1]}", "data.split=val").data
    assert isinstance(data, FolderConfig)
    assert data.fold == "2/5"
    (problem,) = problems_of(f"checkpoint=[{folds[0]},{folds[1]}]", "data.split=val")
    assert f"`data.fold` to be '2/5' with data.split=val, which else may hold cases that {folds[1]} was" in problem
    (problem,) = problems_of(f"checkpoint={run}", "data.split=val", "data.fold=1/5")
    assert "`data.fold` to be None with data.split=val" in problem
    other = [f"checkpoint={folds[0]}", *FOLDER, "data.fold=2/5"]
    assert composed(*other, "data.split=test").data.split == "test", "of which a fold decides nothing"


@pytest.mark.parametrize(("choice", "split", "override", "trained"), [
    ([], "train", "data.split_seed=1", "0"),
    (FOLDER, "val", "data.test_fraction=0.5", "0.15"),
    ([], "test", "data.val_fraction=0.2", "0.15"),
    (FOLDER, "test", "data.group_until=_", "''"),
])  # fmt: skip
def test_a_split_that_is_drawn_otherwise_than_for_training_is_refused(run, choice, split, override, trained):
    """Cases for testing would be among those that the model was trained on."""
    asked = [f"checkpoint={run}", *choice, f"data.split={split}"]
    (problem,) = problems_of(*asked, override)
    said = f"eval: expected `{override.partition('=')[0]}` to be {trained} with data.split={split}, which else may hold"
    assert problem.startswith(f"{said} cases that {run} was")
    assert problem.endswith("other data needs no split (data.split=all).")
    assert composed(*asked).data.split == split
    assert composed(*asked, "data.lists=mine").data.split == split, "lists name the cases"
    assert composed(*asked[:-1], "data.split=all", override).data.split == "all"


def test_a_model_that_was_trained_on_cores_is_split_by_them(tmp_path: Path) -> None:
    """Mutation seen to fail: steps that were chosen, or `postprocess=none`, overridden."""
    run = write_run(tmp_path / "run", InstancesConfig(root="gone"))
    plain = write_run(tmp_path / "plain", InstancesConfig(root="gone", core_depth=None))

    def steps(command: str, *overrides: str) -> list[str]:
        ((_, config),) = compose_and_validate(command, Request(command, overrides))
        return [step.name for step in config.postprocess.steps]

    for command, more in (("eval", ()), ("predict", ("input=images",)), ("tune", ("over=[threshold=0.3|0.5]",))):
        assert steps(command, f"checkpoint={run}", *more) == ["remove_small_objects", "cores"]
        assert steps(command, f"checkpoint={run}", "postprocess=none", *more) == []
        assert steps(command, f"checkpoint={run}", "postprocess.steps=[smooth]", *more) == ["smooth"]
        assert steps(command, f"checkpoint={plain}", *more) == []
