"""The inputs of `same_figures.py`: pairs of masks in every format, and the command lines that must stay equal."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from tests.data.crafted import write_zarr
from tests.data.formats_written import (
    NAMES,
    coco_content,
    draw_mask,
    write_dicom,
    write_geojson,
    write_geotiff,
    write_itk,
    write_ome_zarr,
    write_panoptic,
)
from tests.data.volumes import save_nifti

THREE = f"data.classes=[{','.join(NAMES)}]"
BINARY = ("data.task=binary", "data.classes=[background,cell]")
VOLUMES = (
    "metrics.measures=[{name: surface, surface: both}, instances, average_precision, aji, partition, events, lesions, "
    "sizes"
)
MEASURES = f"{VOLUMES}, boundary, error_types, topology, content, cldice]"  # all but iiou, which needs ids of objects


@dataclass(frozen=True)
class Command:
    """A command line: `{inputs}` is the folder of inputs, `{NAME}` the run of an earlier command on the same side.

    `{base:NAME}` is the run of an earlier command on the first side, for both.
    """

    name: str
    arguments: tuple[str, ...]
    exit_code: int = 0


def _png(path: Path, mask: np.ndarray) -> None:
    Image.fromarray(mask).save(path)


def _tiff(path: Path, mask: np.ndarray) -> None:
    Image.fromarray(mask).save(path, compression="tiff_lzw")


def _cog(path: Path, mask: np.ndarray) -> None:
    write_geotiff(path, mask, tiled=True, blockxsize=16, blockysize=16)


# suffix, axes of the mask, writer, further arguments
FORMATS: dict[str, tuple[str, int, Callable[[Path, np.ndarray], object], tuple[str, ...]]] = {
    "png": (".png", 2, _png, ()),
    "tiff": (".tif", 2, _tiff, ()),
    "geotiff": (".tif", 2, write_geotiff, ()),
    "cog": (".tif", 2, _cog, ()),
    "npy": (".npy", 3, lambda path, mask: np.save(path, mask), ()),
    "npz": (".npz", 2, lambda path, mask: np.savez_compressed(path, mask=mask), ()),
    "zarr": (".zarr", 3, lambda path, mask: write_zarr(path, mask, "zyx"), ()),
    "ome-zarr": (".zarr", 3, write_ome_zarr, ("data.key=labels/cells",)),
    "nifti": (".nii.gz", 3, lambda path, mask: save_nifti(path, mask), ()),
    "mha": (".mha", 3, write_itk, ()),
    "nrrd": (".nrrd", 3, write_itk, ()),
    "dicom": (".dcm", 3, write_dicom, ()),
}


def _sides(count: int, axes: int) -> Iterator[tuple[str, str, np.ndarray]]:
    shape = (5, 36, 41)[-axes:]
    for number in range(count):
        yield "references", f"p{number % 7}_{number:04}", draw_mask(number, shape)
        yield "predictions", f"p{number % 7}_{number:04}", draw_mask(number + (number % 5 > 0) * 10**6, shape)


def write_inputs(root: Path, count: int, golden: Path | None) -> None:
    """Write `count` pairs of every format below `root`, and the golden pair, unless they are there."""
    if (root / "done").exists():
        return
    for side, name in (("predictions", "pred"), ("references", "ref")) if golden else ():
        (root / "golden" / side).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(golden / "spine" / "matched" / f"{name}.nii.gz", root / "golden" / side / "spine.nii.gz")
    for name, (suffix, axes, write, _) in FORMATS.items():
        for side, case_id, mask in _sides(count, axes):
            (root / name / side).mkdir(parents=True, exist_ok=True)
            write(root / name / side / f"{case_id}{suffix}", mask)
    (root / "json").mkdir(parents=True, exist_ok=True)
    for side in ("references", "predictions"):
        masks = {case_id: mask for each, case_id, mask in _sides(count, 2) if each == side}
        (root / "json" / f"{side}.json").write_text(json.dumps(coco_content(masks)))
        write_panoptic(root / "json" / f"panoptic_{side}.json", masks)
        (root / "geojson" / side).mkdir(parents=True, exist_ok=True)
        for case_id, mask in masks.items():
            write = write_geojson if side == "predictions" else _png
            write(root / "geojson" / side / f"{case_id}.{'geojson' if side == 'predictions' else 'png'}", mask)
    rng = np.random.default_rng(0)
    for name in (
        "few",
        "probs",
        *(f"planes/{side}/{plane}" for side in ("references", "predictions") for plane in NAMES),
    ):
        (root / name).mkdir(parents=True, exist_ok=True)
    for side, case_id, mask in _sides(count, 2):
        for label, plane in enumerate(NAMES):
            _png(root / "planes" / side / plane / f"{case_id}.png", (mask == label).astype(np.uint8))
        if (
            side == "predictions" and int(case_id[-4:]) % 4
        ):  # every fourth case has no prediction, others a foreign value
            foreign = np.where(mask == len(NAMES) - 1, 77, mask).astype(np.uint8)
            _png(root / "few" / f"{case_id}.png", foreign if int(case_id[-4:]) % 4 == 1 else mask)
        if side == "predictions":
            drawn = rng.random((len(NAMES), *mask.shape)) + (np.arange(len(NAMES))[:, None, None] == mask)
            np.save(root / "probs" / f"{case_id}.npy", (drawn / drawn.sum(axis=0)).astype(np.float32))
    lines = (f"{case_id},{'AB'[number % 2]},{number % 13}" for number, case_id in enumerate(sorted(masks)))
    (root / "slices.csv").write_text("case_id,scanner,dose\n" + "\n".join(lines) + "\n")
    (root / "done").touch()


def commands(camvid: Path | None, golden: bool, conventions: list[str]) -> Iterator[Command]:
    """Every command line, in the order in which they are run."""
    png = _score("png")
    yield from (Command(f"score {name}", (*_score(name), *FORMATS[name][3])) for name in FORMATS)
    for name in ("", "panoptic_"):
        files = [f"{side}={{inputs}}/json/{name}{side}.json" for side in ("predictions", "references")]
        yield Command(f"score {name}coco", ("score", *files, THREE, "report.html=false"))
    yield Command("score geojson", _score("geojson"))
    yield Command("score every measure", (*png, MEASURES))
    yield Command("score surfaces of volumes", (*_score("nifti"), "metrics.measures=[{name: surface, surface: both}]"))
    yield Command("score objects", (*_score("png", *BINARY), "data.label_map={0: 0, 1: 1, 2: 1}", MEASURES))
    yield Command(
        "score slices", (*png, "metrics.slices={inputs}/slices.csv", "metrics.slice_by=[scanner,'thirds(dose)']")
    )
    yield Command("score clusters", (*png, "metrics.cluster=prefix:_", "metrics.groups={cells: [cell, lymphocyte]}"))
    yield Command("score pictures", (*png, "images={inputs}/png/references", "report.overlays=6", "report.worst=4"))
    few = ("predictions={inputs}/few", "references={inputs}/png/references", THREE, "report.html=false")
    yield Command("score missing and invalid", ("score", *few, "missing=as_background", "data.invalid=count"))
    yield Command("score multilabel", (*_score("planes"), "data.task=multilabel"))
    yield Command("score probs", (*png, "probs={inputs}/probs"))
    for name in (*conventions, "all"):
        yield Command(f"score {name}", (*png, f"metrics.convention={name}"))
    for number in (1, 2, 3):
        yield Command(f"score shard {number}", (*png, f"shard={number}/3"))
    yield Command("merge", ("merge", "runs=[{score shard 1},{score shard 2},{score shard 3}]"))
    yield Command("compare", ("compare", "runs=[{score png},{score geojson}]"))
    yield Command("gate", ("compare", "runs=[{score png},{score geojson}]", "require=mean_iou >= 0.99"), exit_code=4)
    yield Command("train", ("train", "experiment=demo", "training.steps=30", "data.root={inputs}/cells", "device=cpu"))
    evaluated = ("checkpoint={base:train}", "device=cpu", "export.probs=true")
    yield Command(
        "eval", ("eval", *evaluated, "postprocess=cells", "export.instances=true", "metrics.calibration=true")
    )
    for number in (1, 2):
        yield Command(f"eval shard {number}", ("eval", *evaluated, "metrics.calibration=true", f"shard={number}/2"))
    yield Command("merge eval", ("merge", "runs=[{eval shard 1},{eval shard 2}]"))
    yield Command("predict", ("predict", *evaluated, "input={inputs}/png/references"))
    if golden:
        yield Command("golden", (*_score("golden", *BINARY), "data.instances=true", f"{VOLUMES}]"))
    if camvid:
        data = ("data=camvid", f"data.root={camvid}")
        small = ("model.encoder=resnet18", "training.steps=8", "training.batch_size=2", "augment.crop=[128,128]")
        yield Command("train camvid", ("train", *data, *small, "device=cpu"))
        yield Command("eval camvid", ("eval", "checkpoint={base:train camvid}", "device=cpu", "report.html=false"))


def _score(name: str, *classes: str) -> tuple[str, ...]:
    sides = [f"{side}={{inputs}}/{name}/{side}" for side in ("predictions", "references")]
    return ("score", *sides, *(classes or (THREE,)), "report.html=false")
