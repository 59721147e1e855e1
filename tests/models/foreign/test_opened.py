"""Models of others are found by name, completed by a card, mapped to the data's classes, or refused in one line."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torchvision.models import segmentation

from segmeter.classes import ClassSpec
from segmeter.errors import CheckpointError, ConfigError, SegmeterError
from segmeter.models.foreign.config import ForeignConfig, SizeConfig, Source, overlay, register_model
from segmeter.models.foreign.opened import class_numbers, describe, find_source, open_foreign, propose

from .parts import CLASSES, images, predict, predictor, save_hub


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


DATA = ClassSpec(task="multiclass", names=("Sky", "Road", "Pedestrian"), colours=((0, 0, 0),) * 3)


def test_what_is_not_said_hides_nothing():
    below = {"classes": ("a",), "input": {"mean": (1.0,), "order": "rgb"}}
    found = overlay(below, {"classes": None, "input": {"order": "bgr", "mean": None}, "options": {}})
    assert found == {"classes": ("a",), "input": {"mean": (1.0,), "order": "bgr"}, "options": {}}


def test_classes_are_proposed_by_equal_names_and_synonyms():
    assert propose(("sky", "person, individual", "street", "cat"), DATA.names) == {
        "sky": "Sky",
        "person, individual": "Pedestrian",
        "street": "Road",
    }


STAR = {"sky": "Sky", "*": "Road"}  # what "*" names for nothing, and a background without objects, have no channel
GAPS = [
    "names classes that the model lacks car",
    "names classes that the data lacks Cloud",
    "says nothing of the model's classes bus",
    "gives no source of the data's classes Sky, Road, Pedestrian",
]
MAPPED = {  # the model's classes, their map, kind of output, numbers of the data's classes, problems
    "rest": ("sky bus lane human", {"1": "Road", "human": "Pedestrian", "*": "Road"}, "logits", (0, 1, 1, 2), []),
    "numbers": ("sky road lane", {"road": "Road", "1": "Pedestrian", "lane": "Road"}, "logits", (0, 2, 1), []),
    "gaps": ("sky bus", {"car": "Road", "sky": "Cloud"}, "logits", (0, 0), GAPS),
    "pixels": ("sky", STAR, "logits", (0,), ["gives no source of the data's classes Road, Pedestrian"]),
    "objects": ("sky", STAR, "instances", (0,), ["gives no source of the data's classes Road"]),
}


@pytest.mark.parametrize(("classes", "class_map", "kind", "numbers", "problems"), MAPPED.values(), ids=MAPPED)
def test_each_class_is_mapped_by_name_number_or_the_rest_and_every_gap_is_named(
    classes, class_map, kind, numbers, problems
):
    output = {"kind": kind, "background": "Pedestrian"}
    config = ForeignConfig(classes=tuple(classes.split()), class_map=class_map, output=output)
    assert class_numbers(config, DATA) == (numbers, problems)


def test_an_unknown_size_is_refused():
    with pytest.raises(ConfigError, match="to be any, multiple:32"):
        SizeConfig(fit="half")


def test_a_plugin_keeps_its_callable_and_its_card_is_checked_when_it_is_registered(monkeypatch):
    monkeypatch.setattr("segmeter.models.foreign.config.PLUGINS", {})
    assert register_model("mine", classes=["a", "b"])(overlay) is overlay
    with pytest.raises(ConfigError, match="klasses"):
        register_model("mine", klasses=["a"])(overlay)


def test_weights_of_other_classes_are_refused(tmp_path):
    network = segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    with pytest.raises(CheckpointError, match=r"other shape.*model.classes names 5"):
        predictor("torchvision:lraspp_mobilenet_v3_large", weights=str(tmp_path / "weights.pth"), classes=CLASSES)


@pytest.mark.parametrize(
    ("checkpoint", "reason"),
    [
        ("torchvision:lraspp_mobilenet_v3_larg", "Did you mean 'lraspp_mobilenet_v3_large'"),
        ("torchvision:resnet18", "no network for segmentation"),
        ("smp:Unet", "KeyError"),
        ("smp:Unett/resnet18", "KeyError"),
        ("smp:Unet/tu-hf-hub:timm/resnet18", "more than an architecture and an encoder"),
        ("smp:Unet/tu-hf-hub:resnet18", "more than an architecture and an encoder"),
    ],
)
def test_a_name_that_the_library_lacks_is_one_line_with_the_form_of_one(tmp_path, checkpoint, reason):
    torch.save({"a": torch.zeros(1)}, tmp_path / "weights.pth")
    line = rf"can't be built \(.*{reason}.*Give torchvision:NAME.*smp:ARCHITECTURE/ENCODER"
    with pytest.raises(ConfigError, match=line) as caught:
        predictor(checkpoint, classes=CLASSES, weights=str(tmp_path / "weights.pth"))
    assert "\n" not in str(caught.value)


def test_a_network_without_its_weights_is_refused():
    with pytest.raises(ConfigError, match="`weights` to name the file"):
        predictor("smp:Unet/resnet18", classes=CLASSES)


def test_objects_are_those_of_the_tool_with_the_best_score_on_top(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder, case = save_hub(tmp_path, "mask2former"), images(1)[0]
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    network = transformers.AutoModelForUniversalSegmentation.from_pretrained(folder).eval()
    with torch.inference_mode():
        output = network(**processor(case, return_tensors="pt"))
    size = {"target_sizes": [case.shape[:2]], "threshold": 0.1}
    theirs = processor.post_process_instance_segmentation(output, **size, return_binary_maps=True)[0]
    told = {"kind": "instances", "score": 0.1, "background": "none"}
    (found,) = predict(predictor(f"hf:{folder}", output=told, data_classes=("none", *CLASSES)), [case])
    labels, objects = np.zeros(case.shape[:2], int), np.zeros(case.shape[:2], int)
    by_score = sorted(theirs["segments_info"], key=lambda each: each["score"])
    for number, each in enumerate(by_score, 1):
        mask = theirs["segmentation"][each["id"]].numpy() > 0
        labels[mask], objects[mask] = each["label_id"] + 1, number
    assert len(by_score) > 1
    assert np.array_equal(found.labels, labels)
    assert len(np.unique(found.instances)) == len(np.unique(objects))
    pairs = np.unique(np.stack([found.instances.ravel(), objects.ravel()]), axis=1)
    assert pairs.shape[1] == len(np.unique(objects))  # the same objects, whatever their numbers


def test_labels_that_training_reduced_are_the_model_s_own(tmp_path: Path) -> None:
    """`do_reduce_labels` is about masks of training, where 0 is no class."""
    folder, cases = save_hub(tmp_path, "segformer"), images(2)
    before = [found.labels for found in predict(predictor(f"hf:{folder}"), cases)]
    edit(folder, "preprocessor_config.json", do_reduce_labels=True)
    for found, labels in zip(predict(predictor(f"hf:{folder}"), cases), before, strict=True):
        assert np.array_equal(found.labels, labels)


def test_files_of_no_effect_leave_a_model_the_same_and_what_does_not_resize_needs_no_rule(tmp_path: Path) -> None:
    """An evaluation that was begun before such a file came can be resumed."""
    folder, told = save_hub(tmp_path, "segformer"), ForeignConfig(size=SizeConfig(fit="short:64"))
    before = describe(Source("", "hf", str(folder)), told).sha256
    edit(folder, "video_preprocessor_config.json")
    assert describe(Source("", "hf", str(folder)), told).sha256 == before
    edit(folder, "preprocessor_config.json", size={"longest_edge": 80})
    found = describe(Source("", "hf", str(folder)), told)
    assert (found.sha256 == before, found.config.size.longest) == (False, None)
    edit(folder, "preprocessor_config.json", do_resize=False, resample=None)
    assert describe(Source("", "hf", str(folder)), ForeignConfig()).config.size.fit == "any"
