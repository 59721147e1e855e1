"""Small models as other tools save them, with random weights, and images of odd sizes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import segmentation_models_pytorch as smp
import torch
from torch import nn
from torchvision.models import segmentation

from segmeter.data.sample import Sample
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.inference.results import Prediction
from segmeter.models.foreign.config import ForeignConfig
from segmeter.models.trained import read_checkpoints

CLASSES = ("sky", "road", "car", "tree", "person")
SIZES = ((97, 131), (64, 64), (50, 203), (161, 77))


def images(count: int = len(SIZES), channels: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    sizes = [*SIZES, *((int(h), int(w)) for h, w in rng.integers(40, 220, (max(0, count - len(SIZES)), 2)))]
    rough = [rng.integers(0, 256, (h // 8 + 2, w // 8 + 2, channels)) for h, w in sizes[:count]]
    return [np.kron(r, np.ones((8, 8, 1)))[:h, :w].astype(np.uint8) for r, (h, w) in zip(rough, sizes, strict=False)]


def predictor(checkpoint: str, **told: Any) -> Predictor:
    found = read_checkpoints([Path(checkpoint)], user_card=ForeignConfig(**told))
    return Predictor(found.load(), InferenceConfig(), torch.device("cpu"))


def predict(found: Predictor, cases: list[np.ndarray]) -> list[Prediction]:
    return list(found.predict([Sample(case_id=str(i), image=case, target=None) for i, case in enumerate(cases)]))


def normalised(image: np.ndarray) -> torch.Tensor:
    """An image (H, W, 3), or a grey one, as torchvision's networks take it."""
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return ((torch.from_numpy(image) / 255 - mean) / std).permute(2, 0, 1)[None].contiguous()


def check_equal(ours: np.ndarray, logits: torch.Tensor) -> None:
    """Labels equal the winners of a tool's logits (K, H, W), except where its best two are within 1e-5."""
    best = logits.topk(2, 0).values
    same = ours == logits.argmax(0).numpy()
    assert ((best[0] - best[1]).numpy()[~same] <= 1e-5).all()
    assert same.mean() > 0.999


def save_network(
    path: Path, name: str, *, options: dict[str, Any], cases: list[np.ndarray]
) -> tuple[nn.Module, dict[str, Any]]:
    """A network of torchvision or segmentation-models-pytorch that finds each class in `cases`; and its card."""
    torch.manual_seed(0)
    family, _, place = name.partition(":")
    if family == "smp":
        arch, encoder = place.split("/")
        network = smp.create_model(arch, encoder, None, 3, len(CLASSES), **options)
    else:
        network = getattr(segmentation, place)(weights=None, weights_backbone=None, num_classes=len(CLASSES))
    given = torch.cat([normalised(case[:80, :120]) for case in cases])
    settle(network, given)
    with torch.no_grad():  # or one class wins everywhere
        found = network(given)
        bias = [each for each in network.parameters() if each.shape == (len(CLASSES),)][-1]
        bias -= (found["out"] if isinstance(found, dict) else found).mean((0, 2, 3))
    torch.save(network.state_dict(), path)
    return network, {"weights": str(path), "classes": CLASSES, "options": options}


def settle(network: nn.Module, given: torch.Tensor) -> None:
    """Take the statistics of normalisation from images: with fresh ones, each pixel gives nearly the same."""
    for each in network.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.momentum = None  # those of all passes, here of one
    with torch.no_grad():
        network.train()(given)
    network.eval()


def save_hub(folder: Path, family: str) -> Path:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    labels = {"num_labels": len(CLASSES), "id2label": dict(enumerate(CLASSES))}
    config, processor = _hub_parts(transformers, family, labels)
    loader = transformers.AutoModelForUniversalSegmentation if family == "mask2former" else None
    network = (loader or transformers.AutoModelForSemanticSegmentation).from_config(config)
    for each in network.parameters():  # a fresh head gives nearly equal logits
        if each.dim() > 1:
            torch.nn.init.xavier_normal_(each, gain=1.6)
    if family == "mask2former":  # else all its queries find one class
        torch.nn.init.normal_(network.class_predictor.weight, std=3)
        torch.nn.init.normal_(network.model.transformer_module.queries_features.weight, std=3)
    network.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def _hub_parts(transformers: Any, family: str, labels: dict[str, Any]) -> tuple[Any, Any]:
    """The configuration of a tiny network, and its image processor."""
    make, four, narrow = transformers.AutoConfig.for_model, [1] * 4, [8, 8, 16, 16]
    stages = {"depths": four, "out_features": [f"stage{i}" for i in range(1, 5)]}
    few: dict[str, Any]
    if family == "segformer":
        few = {"hidden_sizes": narrow, "depths": four, "num_attention_heads": four, "decoder_hidden_size": 16}
        processor = transformers.SegformerImageProcessor(size={"height": 96, "width": 128})
    elif family == "upernet":
        few = {"hidden_size": 16, "auxiliary_channels": 8, "auxiliary_in_channels": 16}
        few["backbone_config"] = make("convnext", hidden_sizes=narrow, **stages)
        processor = transformers.SegformerImageProcessor(size={"shortest_edge": 96})
    elif family == "dpt":
        few = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
        few |= {"image_size": 64, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": narrow}
        few |= {"fusion_hidden_size": 16, "auxiliary_loss": False}
        processor = transformers.DPTImageProcessor(size={"height": 64, "width": 64})
    else:
        few = dict.fromkeys(("hidden_dim", "feature_size", "mask_feature_size"), 32) | {"num_queries": 8}
        few |= {"encoder_layers": 1, "decoder_layers": 2, "num_attention_heads": 2}
        few |= {"encoder_feedforward_dim": 16, "dim_feedforward": 16}
        few["backbone_config"] = make("swin", embed_dim=8, num_heads=four, window_size=4, **stages)
        processor = transformers.Mask2FormerImageProcessor(size={"shortest_edge": 80, "longest_edge": 200})
    return make(family, **labels, **few), processor
