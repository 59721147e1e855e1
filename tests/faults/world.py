"""A small, sound world: a data set, masks of another tool, probabilities and a checkpoint; and ways to spoil a file."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
import zarr
from PIL import Image

from segmeter.models.checkpoint import write_checkpoint
from segmeter.models.config import ModelCard
from segmeter.records import seal
from tests.data import crafted
from tests.data.crafted import encoded, noise, orientation
from tests.models.parts import make_card, make_spec, make_tiny

CASES = tuple("abcdef")
MARK = "a command ran"
patch = pytest.MonkeyPatch()  # undone after each test


def make_world() -> None:
    """Fill the working folder."""
    for number, name in enumerate(CASES):
        mask = noise(16, 16, None, seed=number) // 160
        put(f"data/images/{name}.png", noise(16, 16, seed=number + 50))
        put(f"data/masks/{name}.png", mask)
        put(f"labels/{name}.png", mask ^ (noise(16, 16, None, seed=number + 99) > 230))
        put(f"probs/{name}.npy", np.stack([np.full((16, 16), share, np.float32) for share in (0.25, 0.75)]))
    write_model("model", make_card(make_spec(2, "binary")))


def write_model(folder: str, card: ModelCard, state: dict[str, torch.Tensor] | None = None) -> None:
    """A checkpoint; `state` gives it other weights than its card asks for."""
    weights = make_tiny(card=card).state_dict()
    progress = {"epoch": 1, "step": 10, "metric": 0.5}
    write_checkpoint(Path(folder), segmenter_state=weights | (state or {}), card=card, state=None, progress=progress)


def put(path: str | Path, content: bytes | str | np.ndarray | dict[str, object]) -> None:
    """Write in the format of the suffix."""
    crafted.put(Path(path), content)


def save(path: str, array: np.ndarray, **options: object) -> None:
    """Write an array as the suffix says; a PNG of the name goes."""
    Path(path).with_suffix(".png").unlink(missing_ok=True)
    if path.endswith(".npy"):
        put(path, array)
    elif path.endswith(".npz"):
        np.savez_compressed(path, **{"mask": array, **options})
    else:
        tifffile.imwrite(path, array, **options)


def cut(path: str | Path, share: float = 0.5) -> None:
    content = Path(path).read_bytes()
    put(path, content[: int(len(content) * share)])


def flip(path: str | Path, share: float = 0.6) -> None:
    content = bytearray(Path(path).read_bytes())
    content[int(len(content) * share)] ^= 1
    put(path, bytes(content))


class Touch:
    """What opening this pickle would do."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return open, (MARK, "w")


def newer_format() -> None:
    path = Path("model/manifest.json")
    path.write_text(json.dumps(seal(json.loads(path.read_text()) | {"format": 2, "segmeter": "9.0"})))


def other_head(bias: torch.Tensor) -> None:
    """Replace the checkpoint by one whose last bias is this one, with a sound manifest."""
    shutil.rmtree("model")
    write_model("model", make_card(make_spec(2, "binary")), {"network.segmentation_head.0.bias": bias})


def many_classes() -> None:
    shutil.rmtree("model")
    write_model("model", make_card(make_spec(300)))


def on_cuda(path: str) -> None:
    """Weights whose file says that they lie on a CUDA device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        state = {name.removeprefix("network."): value for name, value in make_tiny().state_dict().items()}
        torch.save(state, path)


def huge_zarr() -> None:
    Path("labels/b.png").unlink()
    zarr.create_array("labels/b.zarr", shape=(1_000_000, 1_000_000), chunks=(1000, 1000), dtype="u1")


def run_lengths() -> None:
    """COCO's run lengths, whose counts do not even add up to the picture."""
    only("labels")
    put("labels/annotations.json", {"annotations": [{"segmentation": {"size": [16, 16], "counts": [3, 4]}}]})


def coco_counts(counts: list[int] | str) -> None:
    """A COCO file of all cases, in which an object of b has these run lengths."""
    images = [{"id": n, "file_name": f"{name}.png", "height": 16, "width": 16} for n, name in enumerate(CASES)]
    shape = {"size": [16, 16], "counts": counts}
    annotations = [{"id": 1, "image_id": 1, "category_id": 1, "iscrowd": 0, "segmentation": shape}]
    put("coco.json", {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "class_1"}]})


def turned() -> None:
    Path("data/images/b.png").unlink()
    put("data/images/b.jpg", encoded(noise(16, 16), "JPEG", exif=orientation(6)))


def jpeg_mask() -> None:
    Path("data/masks/b.png").unlink()
    put("data/masks/b.jpg", noise(16, 16, None))


def circle() -> None:
    for one, other in (("one", "two"), ("two", "one")):
        Path(one).symlink_to(other)


def linked_to_itself(path: str) -> None:
    Path(path).unlink()
    Path(path).symlink_to(Path(path).name)


def fifo(path: str) -> None:
    Path(path).unlink()
    os.mkfifo(path)


def cmyk() -> None:
    Path("data/images/b.png").unlink()
    Image.fromarray(noise(16, 16)).convert("CMYK").save("data/images/b.jpg", "JPEG")


def animated() -> None:
    frames = [Image.fromarray(noise(16, 16, seed=seed)) for seed in range(3)]
    frames[0].save("data/images/b.png", "PNG", save_all=True, append_images=frames[1:])


def palette() -> None:
    picture = Image.fromarray(noise(16, 16, None) % 2).convert("P")
    picture.putpalette([200, 0, 0, 0, 0, 200])
    picture.save("data/masks/b.png")


def renamed(name: str) -> None:
    """A case of this name whose image is empty."""
    for folder in ("images", "masks"):
        Path(f"data/{folder}/b.png").rename(f"data/{folder}/{name}.png")
    put(f"data/images/{name}.png", b"")


def only(folder: str, *names: str) -> None:
    """A folder of nothing but these files, which are no images."""
    shutil.rmtree(folder)
    Path(folder).mkdir()
    for name in names:
        put(f"{folder}/{name}", b"x")


def linked_out() -> None:
    Path("data/images/b.png").rename("elsewhere.png")
    Path("data/images/b.png").symlink_to(Path("elsewhere.png").absolute())


def equal_images() -> None:
    shutil.copy("data/images/a.png", "data/images/f.png")
    lists(train="a\nb\nc\nd\n", val="e\nf\n")


def lists(**names: str) -> None:
    for split, text in names.items():
        put(f"data/{split}.txt", text)


def gpus(count: int) -> None:
    patch.setattr(torch.cuda, "is_available", lambda: count > 0)
    patch.setattr(torch.cuda, "device_count", lambda: count)


def failing(name: str, code: int) -> None:
    """A file that can't be read: this user may not, which root always may, or its disk is broken."""
    real_open, real_read, real_handle = Path.open, Path.read_bytes, os.open

    def refuse(path: object) -> None:
        if str(path).endswith(name):
            raise OSError(code, os.strerror(code), str(path))

    patch.setattr(Path, "open", lambda self, *given, **options: refuse(self) or real_open(self, *given, **options))
    patch.setattr(Path, "read_bytes", lambda self: refuse(self) or real_read(self))
    patch.setattr(os, "open", lambda path, *given, **options: refuse(path) or real_handle(path, *given, **options))
