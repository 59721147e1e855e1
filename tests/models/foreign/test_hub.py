"""Folders of transformers give what the library itself gives, or are refused in one line."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from segmeter.errors import SegmeterError
from segmeter.models.foreign.config import ForeignConfig, SizeConfig, Source
from segmeter.models.foreign.opened import describe

from .parts import CLASSES, images, predict, predictor, save_hub


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
