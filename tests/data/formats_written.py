"""One mask in the files of other tools, each written by that format's own library."""

import json
import sqlite3
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from segmeter.postprocess.objects import polygonise
from tests.data.crafted import write_multiscales
from tests.differential.peers import quiet

NAMES = ("background", "cell", "lymphocyte")
EDGES = (3.0, 0.5, 0.75)  # mm along depth, height, width
ORIGIN = (10.0, -20.0, 5.0)  # x, y, z in ITK's world


def library(name: str) -> Any:
    found = pytest.importorskip(name, reason=f"{name} is not installed: it comes with `make test`")
    if name == "highdicom":  # it never closes the database in memory of a segmentation, which Python 3.13 warns of
        connect = partial(sqlite3.connect, factory=_Closing, check_same_thread=False)  # any thread collects garbage
        found.image.sqlite3 = SimpleNamespace(**{**vars(sqlite3), "connect": connect})
    return found


class _Closing(sqlite3.Connection):
    def __del__(self) -> None:
        self.close()


def draw_mask(seed: int = 0, shape: tuple[int, ...] = (24, 30)) -> np.ndarray:
    """Blocks of three classes, so that no pixel is at two places at once."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 3, tuple(-(-side // 3) for side in shape)).astype(np.uint8)
    for axis in range(len(shape)):
        coarse = coarse.repeat(3, axis)
    return coarse[tuple(slice(side) for side in shape)]


def write_itk(
    path: Path, mask: np.ndarray, edges: tuple[float, ...] = EDGES, origin: tuple[float, ...] = ORIGIN
) -> None:
    sitk = library("SimpleITK")
    image = sitk.GetImageFromArray(mask)
    image.SetSpacing(tuple(reversed(edges[-mask.ndim :])))
    image.SetOrigin(origin[: mask.ndim])
    sitk.WriteImage(image, str(path))


@quiet()
def write_dicom(path: Path, mask: np.ndarray, *, omit_empty_frames: bool = False) -> None:
    """A segmentation of a CT series that is made up here, by highdicom."""
    highdicom, pydicom = library("highdicom"), library("pydicom")
    codes = pydicom.sr.codedict.codes
    segments = [
        highdicom.seg.SegmentDescription(
            segment_number=label,
            segment_label=name,
            segmented_property_category=codes.SCT.Organ,
            segmented_property_type=codes.SCT.Kidney,
            algorithm_type="MANUAL",
        )
        for label, name in enumerate(NAMES[1:], 1)
    ]
    numbers = {"series_instance_uid": highdicom.UID(), "sop_instance_uid": highdicom.UID(), "instance_number": 1}
    device = {"manufacturer": "none", "manufacturer_model_name": "none", "device_serial_number": "0"}
    highdicom.seg.Segmentation(
        source_images=make_series(mask.shape),
        pixel_array=mask,
        segmentation_type="BINARY",
        segment_descriptions=segments,
        series_number=2,
        software_versions="0",
        omit_empty_frames=omit_empty_frames,
        **numbers,
        **device,
    ).save_as(path)


def make_series(shape: tuple[int, ...]) -> list[Any]:
    """The images of a CT series, without pixels."""
    pydicom = library("pydicom")
    return [_slice(pydicom, shape, number) for number in range(shape[0])]


def _slice(pydicom: Any, shape: tuple[int, ...], number: int) -> Any:
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    uid = "1.2.826.0.1.3680043.8.498.1"
    values: dict[str, Any] = {
        "SOPClassUID": pydicom.uid.CTImageStorage,
        "SOPInstanceUID": f"{uid}.{number + 1}",
        "StudyInstanceUID": f"{uid}.100",
        "SeriesInstanceUID": f"{uid}.200",
        "FrameOfReferenceUID": f"{uid}.300",
        "PatientID": "p",
        "PatientName": "Doe^Jo",
        "Modality": "CT",
        "Manufacturer": "none",
        "SeriesNumber": 1,
        "InstanceNumber": number + 1,
        "ImageOrientationPatient": [1, 0, 0, 0, 1, 0],
        "ImagePositionPatient": [ORIGIN[0], ORIGIN[1], ORIGIN[2] + EDGES[0] * number],
        "PixelSpacing": [EDGES[1], EDGES[2]],
        "SliceThickness": EDGES[0],
        "Rows": shape[1],
        "Columns": shape[2],
    }
    values |= dict.fromkeys(("PatientBirthDate", "PatientSex", "StudyID", "StudyDate", "StudyTime"), "")
    values |= dict.fromkeys(("AccessionNumber", "ReferringPhysicianName", "PositionReferenceIndicator"), "")
    for name, value in values.items():
        setattr(dataset, name, value)
    return dataset


@quiet()
def write_geotiff(path: Path, mask: np.ndarray, *, west: float = 5e5, crs: str = "EPSG:32633", **options: Any) -> None:
    rasterio = library("rasterio")
    options = {"transform": rasterio.transform.from_origin(west, 5.8e6, 0.75, 0.5)} | options
    height, width = mask.shape
    profile = {"driver": "GTiff", "height": height, "width": width, "count": 1, "dtype": mask.dtype.name}
    with rasterio.open(path, "w", **profile, crs=crs, **options) as file:
        file.write(mask, 1)


def write_geojson(path: Path, mask: np.ndarray) -> None:
    """As QuPath exports annotations."""
    features = [
        {
            "type": "Feature",
            "id": f"{label}-{number}",
            "geometry": {"type": "Polygon", "coordinates": rings},
            "properties": {"objectType": "annotation", "classification": {"name": name, "color": [1, 2, 3]}},
        }
        for label, name in enumerate(NAMES)
        if label
        for number, rings in enumerate(polygonise(mask == label))
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))


def coco_content(masks: dict[str, np.ndarray], *, compressed: bool = True) -> dict[str, Any]:
    """Instance annotations of semantic masks: one object per class, run lengths by pycocotools."""
    encode = library("pycocotools.mask").encode
    images, annotations = [], []
    for image, (name, mask) in enumerate(masks.items(), 1):
        images.append({"id": image, "file_name": f"{name}.jpg", "height": mask.shape[0], "width": mask.shape[1]})
        for label in np.unique(mask[mask > 0]).tolist():
            runs = encode(np.asfortranarray(mask == label, np.uint8))
            counts: Any = runs["counts"].decode()
            if not compressed:
                flat = np.asfortranarray(mask == label).ravel(order="F")
                counts = np.diff(np.flatnonzero(np.diff(np.r_[0, flat.astype(int)])), prepend=0).tolist()
                counts.append(mask.size - sum(counts))
            annotation = {"id": len(annotations) + 1, "image_id": image, "category_id": 10 * label, "iscrowd": 0}
            annotations.append(annotation | {"segmentation": {"size": list(mask.shape), "counts": counts}})
    categories = [{"id": 10 * label, "name": name} for label, name in enumerate(NAMES) if label]
    return {"images": images, "annotations": annotations, "categories": categories}


def write_panoptic(path: Path, masks: dict[str, np.ndarray]) -> None:
    """Every class a segment of its own, background being stuff."""
    folder = path.with_suffix("")
    folder.mkdir()
    content = coco_content(masks)
    content["annotations"] = []
    for image, (name, mask) in enumerate(masks.items(), 1):
        ids = 1000 * (mask.astype(np.int64) + 1) + 70000
        Image.fromarray((ids[..., None] >> np.array([0, 8, 16]) & 255).astype(np.uint8)).save(folder / f"{name}.png")
        segments = [
            {"id": 1000 * (label + 1) + 70000, "category_id": 10 * label, "iscrowd": 0}
            for label in np.unique(mask).tolist()
        ]
        content["annotations"].append({"image_id": image, "file_name": f"{name}.png", "segments_info": segments})
    things = [{"id": 10 * label, "name": name, "isthing": int(label > 0)} for label, name in enumerate(NAMES)]
    path.write_text(json.dumps({**content, "categories": things}))


def write_ome_zarr(path: Path, mask: np.ndarray, *, version: str = "0.5") -> None:
    """A picture with the mask as its label map "cells", by zarr, as OME-NGFF 0.4 and 0.5 lay it out."""
    import zarr

    steps = [[{"type": "scale", "scale": list(EDGES[-mask.ndim :])}]]
    form: dict[str, Any] = {"axes": "zyx"[-mask.ndim :], "units": "millimeter", "steps": steps, "version": version}
    root = zarr.open_group(str(path), mode="w", zarr_format=2 if version == "0.4" else 3)
    write_multiscales(root, mask.astype(np.uint16) * 100, **form)
    labels = root.create_group("labels")
    labels.attrs.update(
        {"labels": ["cells"]} if version == "0.4" else {"ome": {"version": version, "labels": ["cells"]}}
    )
    write_multiscales(labels.create_group("cells"), mask, **form)
