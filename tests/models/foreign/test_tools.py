"""Labels of models that others trained, against the pipelines of the tools that made them.

Each kind runs on 20 images of odd sizes: crops of CamVid, and crops of the built-in cells, which are grey.
"""

from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import Tensor, nn

from segmeter.data.config import CellsConfig
from segmeter.data.synthetic import build_cells
from segmeter.inference.predictor import Predictor
from segmeter.models.foreign.network import fit
from tests.differential.peers import load, quiet, settings_kept

from .parts import CLASSES, check_equal, images, normalised, predict, predictor, save_hub, save_network, settle

COUNT = 10  # images of each source
NETWORKS = ("torchvision:deeplabv3_mobilenet_v3_large", "torchvision:lraspp_mobilenet_v3_large")
SMP = {"encoder_depth": 3, "decoder_channels": [8, 8, 4]}

Tool = Callable[[np.ndarray], Tensor]


@pytest.fixture(scope="module")
def sources(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[np.ndarray]]:
    """Images (H, W, 3) or (H, W, 1), no two of one size."""
    files = sorted((shared_data / "camvid/images").glob("*.jpg"))
    config = CellsConfig(root=str(tmp_path_factory.mktemp("cells")), train_cases=1, val_cases=1, test_cases=COUNT)
    whole = {
        "camvid": [np.array(Image.open(path)) for path in files[:: len(files) // COUNT][:COUNT]],
        "cells": [np.asarray(sample.image) for sample in build_cells(config, split="test")],
    }
    return {
        name: [image[11 : 98 + 7 * i, 23 : 146 + 5 * i].copy() for i, image in enumerate(images)]
        for name, images in whole.items()
    }


@pytest.fixture(params=["camvid", "cells"])
def crops(request: pytest.FixtureRequest, sources: dict[str, list[np.ndarray]]) -> list[np.ndarray]:
    return sources[request.param]


def hub(folder: Path, family: str, crops: list[np.ndarray]) -> tuple[str, dict[str, Any], Tool]:
    transformers = pytest.importorskip("transformers")
    save_hub(folder, family)
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    kind = "Universal" if family == "mask2former" else "Semantic"
    network = getattr(transformers, f"AutoModelFor{kind}Segmentation").from_pretrained(folder).eval()

    def tool(image: np.ndarray) -> Tensor:
        size = {"target_sizes": [image.shape[:2]]}
        found = network(**processor(image, return_tensors="pt"))
        if "return_segmentation_scores" not in signature(processor.post_process_semantic_segmentation).parameters:
            (labels,) = processor.post_process_semantic_segmentation(found, **size)  # all that 5.10 to 5.12 give
            return nn.functional.one_hot(labels, network.config.num_labels).permute(2, 0, 1)
        (one,) = processor.post_process_semantic_segmentation(found, **size, return_segmentation_scores=True)
        return one.segmentation_scores

    return f"hf:{folder}", {}, tool


def library(folder: Path, name: str, crops: list[np.ndarray]) -> tuple[str, dict[str, Any], Tool]:
    options = SMP if name.startswith("smp") else {}
    network, told = save_network(folder / "weights.pth", name, options=options, cases=crops)

    def tool(image: np.ndarray) -> Tensor:
        height, width = image.shape[:2]
        if name.startswith("smp"):  # which asks for multiples of 8 here; the card's 32 are a guess
            image = np.pad(image, ((0, -height % 32), (0, -width % 32), (0, 0)), mode="reflect")
        found = network(normalised(image))
        return (found["out"] if isinstance(found, dict) else found)[0, :, :height, :width]

    return name, told, tool


def plain_onnx(folder: Path, name: str, crops: list[np.ndarray]) -> tuple[str, dict[str, Any], Tool]:
    for package in ("onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, len(CLASSES), 3, padding=1)
    network, path = nn.Sequential(*layers).eval(), folder / "model.onnx"
    with quiet():
        sides = {2: torch.export.Dim("height"), 3: torch.export.Dim("width")}
        torch.onnx.export(network, (torch.zeros(1, 3, 64, 96),), path, dynamic_shapes=[sides], verbose=False)
    images = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    return str(path), {"classes": CLASSES, "input": images}, lambda image: network(normalised(image))[0]


KINDS = {
    **dict.fromkeys(("segformer", "upernet", "dpt", "mask2former"), hub),
    **dict.fromkeys((*NETWORKS, "smp:Unet/tu-test_resnet"), library),
    "onnx": plain_onnx,
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_those_of_the_tools_own_pipeline(tmp_path: Path, crops: list[np.ndarray], kind: str) -> None:
    checkpoint, told, tool = KINDS[kind](tmp_path, kind, crops)
    if crops[0].shape[-1] == 1:
        told = {**told, "input": {**told.get("input", {}), "order": "grey"}}
    seen = set[int]()
    for image, found in zip(crops, predict(predictor(checkpoint, **told), crops), strict=True):
        with torch.inference_mode():
            check_equal(found.labels, tool(image.repeat(3 // image.shape[-1], axis=-1)))
        seen |= {*np.unique(found.labels).tolist()}
    assert len(seen) >= 3


YOLO = {
    "semantic": ("yolo26n-sem", {}),
    "semantic of any size": ("yolo26n-sem", {"dynamic": True}),
    "candidates": ("yolo26n-seg", {}),
    "candidates of any size": ("yolo11n-seg", {"dynamic": True}),
    "chosen by the network": ("yolo26n-seg", {"nms": False}),
    "chosen by the file": ("yolo26n-seg", {"nms": True}),
}


@pytest.fixture(scope="module", params=YOLO)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any]]:
    """A file that ultralytics exported, with random weights, and the function that runs it there."""
    name, options = YOLO[request.param]
    pytest.importorskip("onnxruntime")
    load("cv2", "opencv-python-headless")
    ultralytics, tasks = load("ultralytics"), load("ultralytics.nn.tasks")
    folder, task = tmp_path_factory.mktemp("exported"), "semantic" if name.endswith("sem") else "segment"
    config = tasks.yaml_model_load(f"{name}.yaml") | {"nc": len(CLASSES), "scales": {"n": [0.33, 0.125, 256]}}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
    with settings_kept(), quiet(), chdir(folder):  # where it puts the file
        torch.manual_seed(0)
        model = ultralytics.YOLO(folder / f"{name}.yaml", task=task)
        settle(model.model, torch.cat([normalised(image[:32, :32]) for image in images()]).repeat(1, 1, 3, 3))
        for each in model.model.parameters():
            if len(each) == len(CLASSES):  # the scores of the classes, which begin near 0
                torch.nn.init.normal_(each, mean=-1.0 if each.dim() == 1 else 0.0, std=0.3)
        model.model.names = dict(enumerate(CLASSES))
        path = folder / model.export(format="onnx", imgsz=96, simplify=False, verbose=False, **options)
        yield path, partial(ultralytics.YOLO(path, task=task), imgsz=96, verbose=False)


def objects_of(found: Predictor, image: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, classes and masks of the objects of an image at the network's size; ultralytics drops empty masks."""
    (model,) = found.segmenter.members
    fitted, _ = fit(torch.from_numpy(image).permute(2, 0, 1)[None], model.config.size)
    scores, classes, masks = model.network(model.prepare(fitted))
    seen = masks.flatten(1).any(1)
    return scores[seen], classes[seen], masks[seen]


def paint(theirs: Any) -> tuple[np.ndarray, np.ndarray]:
    """The classes, from 1, and the objects of ultralytics' result, the best on top."""
    size, ops = theirs.orig_shape, load("ultralytics.utils.ops")
    labels, objects = np.zeros(size, int), np.zeros(size, int)
    masks = ops.scale_masks(theirs.masks.data[None], size, mode="nearest")[0].numpy() > 0
    for number, index in enumerate(theirs.boxes.conf.argsort().tolist(), 1):
        labels[masks[index]], objects[masks[index]] = int(theirs.boxes.cls[index]) + 1, number
    return labels, objects


def test_files_of_ultralytics_give_its_labels_and_objects(exported: tuple[Path, Any], crops: list[np.ndarray]) -> None:
    path, tool = exported
    order = {"order": "grey" if crops[0].shape[-1] == 1 else "rgb"}
    told = {"input": order, "data_classes": ("none", *CLASSES), "output": {"background": "none"}}
    found = predictor(str(path), **(told if tool.func.task == "segment" else {"input": order}))
    seen = set[int]()
    for image, ours in zip(crops, predict(found, crops), strict=True):
        (theirs,) = tool(image.repeat(3 // image.shape[-1], axis=-1)[..., ::-1])
        seen |= {*np.unique(ours.labels).tolist()}
        if theirs.semantic_mask is not None:
            assert np.array_equal(ours.labels, theirs.semantic_mask.data.numpy())
            continue
        scores, classes, masks = objects_of(found, image)
        assert torch.equal(scores, theirs.boxes.conf)
        assert torch.equal(classes, theirs.boxes.cls.long())
        assert torch.equal(masks, theirs.masks.data > 0)
        labels, objects = paint(theirs)
        assert np.array_equal(ours.labels, labels)
        pairs = np.unique(np.stack([ours.instances.ravel(), objects.ravel()]), axis=1)
        assert pairs.shape[1] == len(np.unique(objects)) == len(np.unique(ours.instances))  # but for their numbers
    assert len(seen) >= 3
