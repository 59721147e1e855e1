import json
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from segmeter.classes import ClassSpec
from segmeter.errors import CheckpointError, ConfigError, SegmeterError
from segmeter.models.foreign.config import ForeignConfig, register_model
from segmeter.models.foreign.opened import describe, find_source, open_foreign
from segmeter.models.weights import load_tensors

from .parts import predictor, save_hub

CARD = "classes: [a, b]\nsize: {fit: any}\noutput: {kind: labels, activation: softmax, axes: BHW}\n"


@register_model("tests-dark", classes=["a", "b"], output={"kind": "labels"})
def dark(images):
    return (images.float().mean(1) < 100).int()


def test_families_are_known_by_their_names():
    found = {
        text: find_source(Path(text)) for text in ("hf:a/b", "smp:Unet/resnet18", "x.onnx", "tests-dark", "runs/x")
    }
    assert [each and each.family for each in found.values()] == ["hf", "smp", "onnx", "plugin", None]


def test_the_command_line_overrides_the_card_and_the_card_the_plugin(tmp_path):
    (tmp_path / "card.yaml").write_text("classes: [c, d]\ninput: {order: bgr}\n")
    told = ForeignConfig(card=str(tmp_path / "card.yaml"), classes=("e", "f"))
    found = describe(find_source("tests-dark"), told)
    assert (found.config.classes, found.config.input.order, found.config.output.kind) == (("e", "f"), "bgr", "labels")
    assert "input.order" not in found.guessed
    assert "input.channels" in found.guessed
    assert found.sha256 != describe(find_source("tests-dark"), ForeignConfig()).sha256


@pytest.mark.parametrize(
    ("task", "names", "message"),
    [
        ("multiclass", ("x", "y"), r"says nothing of the model's classes a, b.*\n.*\n.*a, b \| x, y"),
        ("multilabel", ("a", "b"), "to go with the data's task"),
    ],
)
def test_a_missing_class_map_and_a_task_that_the_model_can_t_have_are_refused(task, names, message):
    spec = ClassSpec(task=task, names=names, colours=((0, 0, 0),) * 2)
    with pytest.raises(ConfigError, match=message):
        open_foreign(describe(find_source("tests-dark"), ForeignConfig()), spec)


def test_the_class_of_pixels_without_an_object_is_asked_for():
    told = ForeignConfig(output={"kind": "instances"})
    with pytest.raises(ConfigError, match=r"nothing tells model\.output\.background"):
        describe(find_source("tests-dark"), told)


class Boom:
    def __reduce__(self):
        return (Path.touch, (Path("ran"),))


@pytest.mark.parametrize("kind", ["pickle", "torchscript", "pt2"])
def test_programs_are_refused_and_not_run(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path, network = tmp_path / f"model.{'pt2' if kind == 'pt2' else 'pt'}", torch.nn.Identity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        if kind == "pickle":
            torch.save({"model": Boom()}, path)
        elif kind == "torchscript":
            torch.jit.save(torch.jit.script(network), path)
        else:
            torch.export.save(torch.export.export(network, (torch.zeros(1),)), path)
    with pytest.raises(CheckpointError, match=r"could run code; nothing ran.*ONNX"):
        load_tensors(path)
    assert not Path("ran").exists()


def edit(folder: Path, name: str = "config.json", **changes: object) -> None:
    path = folder / name
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))


def drop_head(folder: Path) -> None:
    weights = folder / "model.safetensors"
    kept = {name: each for name, each in load_file(weights).items() if "classifier" not in name}
    save_file(kept, weights, {"format": "pt"})


CODE = {"AutoConfig": "mine.Config", "AutoModelForSemanticSegmentation": "mine.Model"}
PROCESSOR = {"auto_map": {"AutoImageProcessor": "mine.Processor"}, "image_processor_type": "Processor"}
SPOILT = {
    "remote code": (partial(edit, auto_map=CODE, model_type="mine"), "code of its own"),
    "code of the processor": (partial(edit, name="preprocessor_config.json", **PROCESSOR), "code of its own"),
    "a processor that crops": (
        partial(edit, name="preprocessor_config.json", do_center_crop=True),
        "its image processor has do_center_crop, which is not supported. Export it to ONNX",
    ),
    "pickle": (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "no safetensors"),
    "no head": (partial(edit, model_type="resnet"), "can't load it for segmentation.*Export it to ONNX"),
    "random head": (drop_head, "these would be random: decode_head.classifier"),
    "classes": (
        partial(edit, id2label={str(i): f"class{i}" for i in range(7)}),
        "in another shape, so these would be random: decode_head.classifier",
    ),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_folder_that_is_not_a_whole_model_is_refused(tmp_path, how):
    folder, (spoil, line) = save_hub(tmp_path, "segformer"), SPOILT[how]
    trace = tmp_path / "ran"
    (folder / "mine.py").write_text(f"import pathlib\npathlib.Path({str(trace)!r}).touch()\n")
    spoil(folder)
    with pytest.raises(SegmeterError, match=line) as caught:
        predictor(f"hf:{folder}", input={"mean": []}, size={"fit": "any"})
    assert "\n" not in str(caught.value)
    assert not trace.exists()
