"""A small, sound world: a data set, masks of another tool, probabilities and a checkpoint; and ways to spoil a file."""

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
import zarr
from PIL import Image
from torch import nn

from segmeter.models.checkpoint import write_checkpoint
from segmeter.models.config import ModelCard
from tests.data.crafted import encoded, noise, png_bytes
from tests.models.parts import make_card, make_spec, make_tiny

CASES = tuple("abcdef")
MARK = "a command ran"
DOT = np.zeros((16, 16), np.uint8)
DOT[3, 4] = 1
patch = pytest.MonkeyPatch()  # undone after each test


def make_world() -> None:
    """Fill the working folder."""
    for number, name in enumerate(CASES):
        mask = noise(16, 16, None, seed=number) // 160
        put(f"data/images/{name}.png", encoded(noise(16, 16, seed=number + 50)))
        put(f"data/masks/{name}.png", encoded(mask))
        put(f"labels/{name}.png", encoded(mask ^ (noise(16, 16, None, seed=number + 99) > 230)))
        first = np.full((16, 16), 0.25, np.float32)
        save(f"probs/{name}.npy", np.stack([first, 1 - first]))
    write_model("model", make_card(make_spec(2, "binary")))


def write_model(folder: str, card: ModelCard, state: dict[str, torch.Tensor] | None = None) -> None:
    """A checkpoint; `state` gives it other weights than its card asks for."""
    weights = make_tiny(card=card).state_dict()
    progress = {"epoch": 1, "step": 10, "metric": 0.5}
    write_checkpoint(Path(folder), segmenter_state=weights | (state or {}), card=card, state=None, progress=progress)


def put(path: str, content: bytes | str) -> None:
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())


def image(array: np.ndarray, path: str = "data/images/b.png", form: str = "PNG", **options: object) -> None:
    put(path, encoded(array, form, **options))


def mask(array: np.ndarray, path: str = "data/masks/b.png") -> None:
    put(path, encoded(array))


def save(path: str, array: np.ndarray, **options: object) -> None:
    """Write an array as the suffix says; a PNG of the name goes."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).with_suffix(".png").unlink(missing_ok=True)
    if path.endswith(".npy"):
        np.save(path, array)
    elif path.endswith(".npz"):
        np.savez_compressed(path, **{"mask": array, **options})
    else:
        tifffile.imwrite(path, array, **options)


def png(path: str, height: int, width: int) -> None:
    """A PNG whose header promises more, or less, than it holds."""
    put(path, png_bytes(b"\0", height=height, width=width))


def cut(path: str, share: float = 0.5) -> None:
    content = Path(path).read_bytes()
    put(path, content[: int(len(content) * share)])


def flip(path: str, share: float = 0.6) -> None:
    content = bytearray(Path(path).read_bytes())
    content[int(len(content) * share)] ^= 1
    put(path, bytes(content))


def own_config(text: str, name: str = "mine.yaml") -> None:
    put(f"conf/experiment/{name}", f"# @package _global_\n{text}")


class Touch:
    """What opening this pickle would do."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return open, (MARK, "w")


def pickled(path: str) -> None:
    put(path, pickle.dumps({"weights": Touch()}))


def whole_module(path: str) -> None:
    torch.save(nn.Sequential(nn.Conv2d(1, 1, 1)), path)


def foreign_state(path: str) -> None:
    torch.save({"module.conv.weight": torch.ones(2)}, path)


def newer_format() -> None:
    from segmeter.records import seal

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


def circle() -> None:
    Path("one").symlink_to("two")
    Path("two").symlink_to("one")


def linked_to_itself(path: str) -> None:
    Path(path).unlink()
    Path(path).symlink_to(Path(path).name)


def huge_zarr(path: str) -> None:
    Path(path).with_suffix(".png").unlink()
    zarr.create_array(path, shape=(1_000_000, 1_000_000), chunks=(1000, 1000), dtype="u1")


def fifo(path: str) -> None:
    Path(path).unlink()
    os.mkfifo(path)


def probs(value: float) -> None:
    save("probs/b.npy", np.full((2, 16, 16), value, np.float32))


def run_lengths() -> None:
    """COCO's run lengths, whose counts do not even add up to the picture."""
    only("labels")
    put("labels/annotations.json", '{"annotations": [{"segmentation": {"size": [16, 16], "counts": [3, 4]}}]}')


def coco_counts(counts: list[int] | str) -> None:
    """A COCO file of all cases, in which an object of b has these run lengths."""
    images = [{"id": n, "file_name": f"{name}.png", "height": 16, "width": 16} for n, name in enumerate(CASES)]
    shape = {"size": [16, 16], "counts": counts}
    annotations = [{"id": 1, "image_id": 1, "category_id": 1, "iscrowd": 0, "segmentation": shape}]
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "class_1"}]}
    put("coco.json", json.dumps(content))


def rgba() -> None:
    image(np.dstack([noise(16, 16), np.full((16, 16), 254, np.uint8)]))


def cmyk() -> None:
    Path("data/images/b.png").unlink()
    Image.fromarray(noise(16, 16)).convert("CMYK").save("data/images/b.jpg", "JPEG")


def animated() -> None:
    frames = [Image.fromarray(noise(16, 16, seed=seed)) for seed in range(3)]
    frames[0].save("data/images/b.png", "PNG", save_all=True, append_images=frames[1:])


def turned() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Path("data/images/b.png").unlink()
    image(noise(16, 16), "data/images/b.jpg", "JPEG", exif=exif.tobytes())


def palette() -> None:
    picture = Image.fromarray(noise(16, 16, None) % 2).convert("P")
    picture.putpalette([200, 0, 0, 0, 0, 200])
    picture.save("data/masks/b.png")


def jpeg_mask() -> None:
    Path("data/masks/b.png").unlink()
    put("data/masks/b.jpg", encoded(noise(16, 16, None), "JPEG"))


def pages(path: str = "data/images/b.tif") -> None:
    save(path, np.stack([noise(16, 16, None, seed=seed) for seed in range(4)]), photometric="minisblack")


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


def unreadable(path: str) -> None:
    """A file that this user may not read, which root always may."""
    real = os.open

    def opened(name: object, *given: object, **options: object) -> int:
        if str(name).endswith(path):
            raise PermissionError(13, "Permission denied", str(name))
        return real(name, *given, **options)  # type: ignore[arg-type]

    patch.setattr(os, "open", opened)


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


def broken(name: str) -> None:
    """A file whose disk can't be read."""
    real_open, real_read, real_handle = Path.open, Path.read_bytes, os.open

    def refuse(path: object) -> None:
        if str(path).endswith(name):
            raise OSError(5, "Input/output error", str(path))

    patch.setattr(Path, "open", lambda self, *given, **options: refuse(self) or real_open(self, *given, **options))
    patch.setattr(Path, "read_bytes", lambda self: refuse(self) or real_read(self))
    patch.setattr(os, "open", lambda path, *given, **options: refuse(path) or real_handle(path, *given, **options))
