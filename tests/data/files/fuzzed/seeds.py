"""Sound files of every format that the readers know, to be damaged, and how each format's files are damaged."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tifffile
from PIL import Image

from tests.data.files.fuzzed import mutations as change
from tests.data.formats_written import (
    NAMES,
    coco_content,
    draw_mask,
    library,
    write_dicom,
    write_geojson,
    write_geotiff,
    write_itk,
    write_ome_zarr,
    write_panoptic,
)
from tests.data.masks.exported import brush, cvat_mask, cvat_polygon, polygon, task, write_cvat
from tests.data.volumes import save_nifti

SHAPE = (24, 30)
VOLUME = (4, 12, 15)
_MHA = (b"HeaderSize = ", b"CompressedDataSize = ", b"BinaryDataByteOrderMSB = ", b"ElementNumberOfChannels = ")
_NRRD = (b"line skip: ", b"byte skip: ", b"block size: ", b"min: ", b"old max: ", b"thicknesses: ")
_NRRD += (b"space dimension: ",)


@dataclass(frozen=True)
class Format:
    """Its sound files, written into a folder, and changes that know it; half of all changes are those of any bytes.

    A file with others beside it, or a folder, is a case: one file of it is damaged.
    """

    write: Callable[[Path], object]
    changes: tuple[change.Change, ...] = ()


def _pictures(folder: Path) -> None:
    """Small ones, and large ones that the compiled reader decodes."""
    small, large = draw_mask(), draw_mask(shape=(270, 260))
    Image.fromarray(small).save(folder / "gray.png")
    Image.fromarray(large).save(folder / "large.png")
    Image.fromarray(large.astype(np.uint16) * 1000).save(folder / "deep.png")
    Image.fromarray(large > 0).save(folder / "one.png")
    Image.fromarray(small).convert("P").save(folder / "palette.png")
    Image.fromarray(small).save(folder / "gray.bmp")


def _images(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*SHAPE, 4), np.uint8)
    Image.fromarray(pixels[..., :3]).save(folder / "a.jpg", quality=90)
    Image.fromarray(pixels[..., 0]).save(folder / "gray.jpg")
    Image.fromarray(pixels[..., :3]).save(folder / "progressive.jpg", progressive=True)
    Image.fromarray(pixels[..., :3]).save(folder / "rgb.png")
    pixels[..., 3] = 255
    Image.fromarray(pixels).save(folder / "rgba.png")
    Image.fromarray(pixels[..., :3]).save(folder / "rgb.bmp")


def _tiff(folder: Path) -> None:
    mask, volume = draw_mask(), draw_mask(shape=VOLUME)
    for name in ("lzw", "deflate", "packbits", "zstd", "lzma", "lerc"):
        tifffile.imwrite(folder / f"{name}.tif", mask, compression=name)
    tifffile.imwrite(folder / "predicted.tif", mask.astype(np.uint16), compression="lzw", predictor=True)
    tifffile.imwrite(folder / "plain.tif", mask, byteorder=">")
    tifffile.imwrite(folder / "tiles.tif", draw_mask(shape=(40, 50)), tile=(16, 16), compression="zlib")
    tifffile.imwrite(folder / "big.tif", mask, bigtiff=True)
    tifffile.imwrite(folder / "bits.tif", mask > 0)
    tifffile.imwrite(folder / "imagej.tif", volume, imagej=True, metadata={"axes": "ZYX", "unit": "um", "spacing": 3})
    sizes = {"axes": "ZYX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5, "PhysicalSizeZ": 3.0}
    tifffile.imwrite(folder / "stack.ome.tif", volume, metadata=sizes, compression="zlib")


def _geotiff(folder: Path) -> None:
    write_geotiff(folder / "plain.tif", draw_mask(), nodata=255)
    tiles = {"tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "lzw"}
    write_geotiff(folder / "tiled.tif", draw_mask(shape=(64, 48)), **tiles)


def _npy(folder: Path) -> None:
    for name, array in {"u1": draw_mask(), "f4": draw_mask(shape=VOLUME).astype(np.float32)}.items():
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "order.npy", np.asfortranarray(draw_mask().astype(">i8")))


def _npz(folder: Path) -> None:
    np.savez(folder / "stored.npz", labels=draw_mask())
    np.savez_compressed(folder / "packed.npz", labels=draw_mask(shape=VOLUME).astype(np.float32))


def _zarr(folder: Path) -> None:
    zarr, codecs = library("zarr"), library("zarr.codecs")
    packers = {"zstd": codecs.ZstdCodec(), "blosc": codecs.BloscCodec(), "gzip": codecs.GzipCodec(), "none": None}
    for name, packer in packers.items():
        zarr.create_array(str(folder / f"{name}.zarr"), data=draw_mask(), chunks=(10, 12), compressors=packer)
    for packer in ("Blosc", "Zstd", "LZ4", "Zlib", "BZ2", "LZMA"):
        codec = getattr(library("numcodecs"), packer)()
        path = str(folder / f"two {packer}.zarr")
        zarr.create_array(path, data=draw_mask(), chunks=(10, 12), compressors=codec, zarr_format=2)
    zarr.create_array(str(folder / "shards.zarr"), data=draw_mask(), chunks=(4, 5), shards=(12, 15))


def _ome_zarr(folder: Path) -> None:
    for version in ("0.4", "0.5"):
        write_ome_zarr(folder / f"{version}.ome.zarr", draw_mask(shape=VOLUME), version=version)


def _nifti(folder: Path) -> None:
    for name, dtype in {"a.nii": np.uint8, "b.nii.gz": np.uint8, "c.nii": np.float32, "d.nii.gz": np.int16}.items():
        save_nifti(folder / name, draw_mask(shape=VOLUME).astype(dtype))


def _itk(suffix: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        sitk = library("SimpleITK")
        write_itk(folder / f"plane{suffix}", draw_mask())
        write_itk(folder / f"volume{suffix}", draw_mask(shape=VOLUME).astype(np.int16))
        sitk.WriteImage(sitk.GetImageFromArray(draw_mask(shape=VOLUME)), str(folder / f"packed{suffix}"), True)

    return write


def _dicom(folder: Path) -> None:
    write_dicom(folder / "a.dcm", draw_mask(shape=(3, 9, 12)))
    write_dicom(folder / "b.dcm", draw_mask(seed=1, shape=(4, 8, 8)), omit_empty_frames=True)


def _coco(folder: Path) -> None:
    content = coco_content({"x": draw_mask(), "y": draw_mask(seed=1)})
    (folder / "runs.json").write_text(json.dumps(content))
    content = coco_content({"x": draw_mask()}, compressed=False)
    (folder / "lists.json").write_text(json.dumps(content))
    for number, each in enumerate(content["annotations"]):
        each["segmentation"] = [[1.5 + 9 * number, 2, 9 + 9 * number, 3.25, 8 + 9 * number, 15, 2 + 9 * number, 12.5]]
    (folder / "polygons.json").write_text(json.dumps(content))
    write_panoptic(folder / "panoptic.json", {"x": draw_mask(shape=(12, 15))})


def _geojson(folder: Path) -> None:
    write_geojson(folder / "a.geojson", draw_mask())
    write_geojson(folder / "b.geojson", draw_mask(seed=1, shape=(12, 9)))


def _yolo(folder: Path) -> None:
    (folder / "a.txt").write_text("0 0.1 0.1 0.4 0.1 0.4 0.5 0.1 0.5\n1 0.6 0.6 0.9 0.6 0.9 0.9\n")
    (folder / "b.txt").write_text("1 0 0 1 0 1 1 0 1 0.87\n")


def _label_studio(folder: Path) -> None:
    mask = draw_mask()
    strokes = [brush(mask == label, NAMES[label]) for label in (1, 2)]
    (folder / "brush.json").write_text(json.dumps([task(*strokes)]))
    shapes = [polygon(np.array([[1, 1], [9, 1], [9, 9], [1, 9]]) + 10 * step, NAMES[1 + step]) for step in (0, 1)]
    (folder / "polygons.json").write_text(json.dumps([task(*shapes), task(strokes[0], image="y.png")]))


def _cvat(folder: Path) -> None:
    mask = draw_mask()
    masks = [cvat_mask(mask == label, NAMES[label]) for label in (1, 2)]
    write_cvat(folder / "masks.xml", masks)
    write_cvat(folder / "polygons.xml", [cvat_polygon([[1, 1], [9.5, 1], [9, 9]]), masks[1]])


FORMATS = {
    "png, bmp": Format(_pictures, (change.in_png,)),
    "images": Format(_images, (change.in_png,)),
    "tiff": Format(_tiff, (change.in_tiff,)),
    "geotiff": Format(_geotiff, (change.in_tiff,)),
    "npy": Format(_npy, (change.in_npy,)),
    "npz": Format(_npz, (change.in_npz,)),
    "zarr": Format(_zarr, (change.in_json, change.in_text)),
    "ome-zarr": Format(_ome_zarr, (change.in_json, change.in_text)),
    "nifti": Format(_nifti, (change.in_gzip,)),
    "mha": Format(_itk(".mha"), (change.in_header(b"\nElementDataFile = LOCAL\n", _MHA),)),
    "nrrd": Format(_itk(".nrrd"), (change.in_header(b"\n\n", _NRRD),)),
    "dicom": Format(_dicom, (change.in_dicom,)),
    "coco": Format(_coco, (*[change.in_json] * 9, change.in_text)),
    "geojson": Format(_geojson, (*[change.in_json] * 9, change.in_text)),
    "yolo": Format(_yolo, (change.in_text,)),
    "label-studio": Format(_label_studio, (*[change.in_json] * 9, change.in_text)),
    "cvat": Format(_cvat, (change.in_text,)),
}
