"""Loads segmentation models of transformers from a folder or the hub's cache; only tensors are read, no code."""

import logging
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional

from segmeter.checks import shorten
from segmeter.data.files.reader_process import need
from segmeter.errors import CheckpointError, ConfigError, refusing
from segmeter.models.foreign.config import Facts, ForeignConfig, Source
from segmeter.records import read_json

_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_UNIVERSAL = "mask2former"
_MASK2FORMER = (384, 384)  # Mask2Former multiplies classes and masks at this size, whatever the image's
_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_WANTED = ["*.json", "*.safetensors"]
_EXPORT = "Export it to ONNX, and give that file."


def describe(source: Source, user_card: ForeignConfig) -> Facts:
    """Read the card of a model from its `config.json` and `preprocessor_config.json`.

    Raises
    ------
    CheckpointError
        The folder lacks these, needs code of its own, or has no safetensors.
    ConfigError
        The model's image processor does something that a card can't describe.
    DataError
        transformers is not installed.
    """
    need("transformers", "hf", "hf: models")
    folder = find_folder(source.place)
    config = read_json(folder / "config.json")
    weights = sorted(folder.glob("*.safetensors"))
    if any("auto_map" in content for content in (config, *map(read_json, folder.glob("*processor_config.json")))):
        raise CheckpointError(f"{folder}: needs code of its own (auto_map), which is never run. {_EXPORT}")
    if not weights:
        raise CheckpointError(f"{folder}: has no safetensors, and other weights can run code. Save it again with them.")
    labels = config.get("id2label") or {}
    classes = tuple(str(labels[key]) for key in sorted(labels, key=int)) or None
    output = {"kind": "probs" if config.get("model_type") == _UNIVERSAL else "logits", "activation": "softmax"}
    names = ("config.json", "preprocessor_config.json", "processor_config.json")  # other files don't affect images
    files = (*(folder / name for name in names if (folder / name).is_file()), *weights)
    return Facts({"classes": classes, "output": output, **_processor(folder)}, files)


def find_folder(place: str) -> Path:
    """Find a model's folder: a given folder, or else a name's snapshot in the hub's cache, which may be downloaded."""
    if (Path(place) / "config.json").is_file():
        return Path(place)
    if Path(place).is_dir() or place.count("/") != 1:
        raise CheckpointError(f"hf:{place}: no folder with a config.json, nor a name such as nvidia/segformer-b0.")
    from huggingface_hub import snapshot_download

    with refusing(CheckpointError, f"hf:{place}: can't load", "Give a folder."):
        try:
            return Path(snapshot_download(place, local_files_only=True, allow_patterns=_WANTED))
        except Exception:  # not in the cache
            return Path(snapshot_download(place, allow_patterns=_WANTED))


def load(source: Source, config: ForeignConfig) -> nn.Module:
    """Build the network and load its weights.

    Raises
    ------
    CheckpointError
        Weights are missing or don't fit, so that a part would be random.
    """
    import transformers

    folder = find_folder(source.place)
    universal = read_json(folder / "config.json").get("model_type") == _UNIVERSAL
    loader = getattr(transformers, f"AutoModelFor{'Universal' if universal else 'Semantic'}Segmentation")
    _silence()
    with refusing(CheckpointError, f"{folder}: transformers can't load it for segmentation", _EXPORT):
        network, info = loader.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # weights of another shape are listed, and refused below
            **_LOCAL,
        )
    lost = sorted({*info["missing_keys"], *(str(entry[0]) for entry in info["mismatched_keys"])})
    if lost:
        problem = f"lacks weights or has them in another shape, so these would be random: {shorten(lost, most=4)}"
        remedy = "Take a checkpoint that was trained for segmentation, with the classes of its config.json."
        raise CheckpointError(f"{folder}: {problem}. {remedy}")
    decode = partial(_decode, objects=config.output.kind == "instances") if universal else attrgetter("logits")
    network.register_forward_hook(lambda module, args, output: decode(output))
    return cast(nn.Module, network)


def _decode(output: Any, *, objects: bool) -> Any:
    """Compute scores (1, K, h, w) of the classes from Mask2Former's queries, each with a class and a mask.

    Or, with `objects`, scores (N,), classes (N,) and masks (N, h, w) of the queries themselves.
    """
    masks = functional.interpolate(output.masks_queries_logits, _MASK2FORMER, mode="bilinear", align_corners=False)
    classes = output.class_queries_logits.softmax(-1)[..., :-1]  # without "no object"
    if not objects:
        return torch.einsum("bqc,bqhw->bchw", classes, masks.sigmoid())
    scores, indices = classes[0].flatten().topk(len(classes[0]), sorted=False)  # of a query and a class together
    masks = masks[0][indices // classes.shape[-1]]
    inside = (masks > 0).float()
    certainty = (masks.sigmoid() * inside).flatten(1).sum(1) / (inside.flatten(1).sum(1) + 1e-6)
    return scores * certainty, indices % classes.shape[-1], inside > 0


def _processor(folder: Path) -> dict[str, Any]:
    """Return the model's image processor as the keys of a card."""
    import transformers

    _silence()
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(folder, **_LOCAL).to_dict()
    except Exception:  # there is none, so the card must say how images are prepared
        return {}
    refused = [key for key in ("do_center_crop", "do_pad", "keep_aspect_ratio", "do_thumbnail") if processor.get(key)]
    if refused:
        raise ConfigError(f"{folder}: its image processor has {', '.join(refused)}, which is not supported. {_EXPORT}")
    normalises = processor.get("do_normalize", True)
    mean, std = (processor[key] if normalises else () for key in ("image_mean", "image_std"))
    scale = processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1.0
    images = {"dtype": "uint8", "order": "rgb", "channels": len(processor.get("image_mean") or (0, 0, 0))}
    images |= {"scale": scale, "mean": mean, "std": std}
    if not processor.get("do_resize", True):
        return {"input": images, "size": {"fit": "any"}}
    size = processor.get("size") or {}
    multiple = processor.get("size_divisor") or processor.get("ensure_multiple_of") or 1
    resizing: dict[str, Any] = {"multiple": multiple if multiple > 1 else None, "antialias": True}
    resizing |= {"filter": _FILTERS.get(int(processor.get("resample", 2))), "backend": "torchvision"}
    if "height" in size:
        resizing["fit"] = f"fixed:{size['height']}x{size['width']}"
    elif "shortest_edge" in size:
        resizing |= {"fit": f"short:{size['shortest_edge']}", "longest": size.get("longest_edge")}
    return {"input": images, "size": resizing}


def _silence() -> None:
    """Keep progress bars and reports of transformers off the terminal."""
    from transformers.utils import logging as theirs

    theirs.set_verbosity(logging.CRITICAL)
    theirs.disable_progress_bar()
