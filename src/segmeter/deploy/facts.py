"""checkpoint -> what an exported file says of itself."""

from typing import Any

from segmeter import __version__
from segmeter.classes import label_dtype
from segmeter.deploy.trace import INPUT, OUTPUT
from segmeter.models.checkpoints.checkpoint import Checkpoints

KEY = "segmeter"  # of ONNX's metadata


def describe(checkpoint: Checkpoints, *, threshold: float, dtype: str, least: int) -> dict[str, Any]:
    """Card, input, output and origin, in values that JSON has."""
    spec = checkpoint.card.spec
    return {
        "segmeter": __version__,
        "checkpoint_sha256": checkpoint.sha256,
        "averaged": [member.sha256 for member in checkpoint.members] if len(checkpoint.members) > 1 else None,
        "input": {"name": INPUT, "axes": ["batch", "height", "width", "channel"], "dtype": dtype, "least_size": least},
        "output": {
            "name": OUTPUT,
            "axes": ["batch", *(["class"] if spec.is_multilabel else []), "height", "width"],
            "dtype": label_dtype(spec.num_values - 1).name,
        },
        "threshold": None if spec.task == "multiclass" else threshold,
        "card": checkpoint.card.to_dict(),
    }
