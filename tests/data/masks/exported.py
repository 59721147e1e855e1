"""Masks as annotation tools export them, written from descriptions of their formats."""

from xml.sax.saxutils import quoteattr

import numpy as np

from segmeter.classes import ClassSpec
from segmeter.data.sample import Reading
from segmeter.postprocess.objects import polygonise
from tests.data.crafted import put
from tests.data.formats_written import NAMES

SPEC = ClassSpec(task="multiclass", names=NAMES, colours=((0, 0, 0),) * 3)
CELLS = ClassSpec(task="binary", names=("none", "cell"), colours=((0, 0, 0), (1, 1, 1)))
READING = Reading(spec=SPEC, label_map={}, max_pixels=10_000)
OBJECTS = Reading(spec=CELLS, label_map={}, max_pixels=10_000, instances=True)
SHAPE = (24, 30)


def parts_of(mask):
    """The outline of every part of every class without holes; those of one class may not touch."""
    for label in range(1, len(NAMES)):
        for outline, *holes in polygonise(mask == label):
            assert not holes
            yield label, np.array(outline, float)


def blocks():
    mask = np.zeros(SHAPE, np.uint8)
    mask[2:9, 3:12], mask[12:20, 5:9], mask[9:14, 20:30] = 1, 2, 1
    return mask


def pack_brush(values, *, width=8, sizes=(3, 4, 8, 16), repeat=True):
    """Label Studio's brush code, written from its description; runs of one value, or single values."""
    bits = f"{len(values):032b}{width - 1:05b}" + "".join(f"{size - 1:04b}" for size in sizes)
    edges = np.flatnonzero(np.diff(values)) + 1
    for run in np.split(values, edges):
        at = 0
        while at < len(run):
            length = min(len(run) - at, 2 ** sizes[-1]) if repeat else min(len(run) - at, 2 ** sizes[0])
            index = next(i for i, size in enumerate(sizes) if length <= 2**size)
            bits += f"{int(repeat)}{index:02b}{length - 1:0{sizes[index]}b}"
            bits += "".join(f"{value:0{width}b}" for value in run[at : at + (1 if repeat else length)])
            at += length
    bits += "0" * (-len(bits) % 8)
    return [int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)]


def region(kind, value, label="cell", **more):
    size = {"original_height": SHAPE[0], "original_width": SHAPE[1]}
    return {"type": kind, "value": {**value, kind: [label]}, **size, **more}


def polygon(corners, label="cell"):
    points = (np.array(corners) / SHAPE[::-1] * 100).tolist()
    return region("polygonlabels", {"points": points, "closed": True}, label)


def brush(mask, label="cell"):
    pixels = np.zeros((*mask.shape, 4), np.uint8)
    pixels[mask] = (10, 20, 30, 255)
    pixels[mask & (mask.cumsum().reshape(mask.shape) == 1), 3] = 1  # a nearly transparent pixel is part of the stroke
    return region("brushlabels", {"format": "rle", "rle": pack_brush(pixels.ravel())}, label)


def task(*results, image="/data/upload/3/0a1b2c3d-x.png", annotations=None):
    return {"id": 1, "data": {"image": image}, "annotations": annotations or [{"result": list(results)}]}


def write_cvat(path, shapes, *, name="frames/x.png", size=SHAPE):
    text = "".join(
        f"<{kind} {' '.join(f'{key}={quoteattr(str(value))}' for key, value in given.items())}></{kind}>"
        for kind, given in shapes
    )
    image = f'<image id="0" name="{name}" width="{size[1]}" height="{size[0]}">{text}</image>'
    head = '<?xml version="1.0" encoding="utf-8"?>\n<annotations><version>1.1</version><meta></meta>'
    return put(path, f"{head}{image}</annotations>".encode())


def cvat_polygon(corners, label="cell", order=0):
    points = ";".join(f"{x:.2f},{y:.2f}" for x, y in corners)
    return "polygon", {"label": label, "source": "manual", "occluded": 0, "points": points, "z_order": order}


def cvat_mask(mask, label="cell", order=0):
    rows, columns = np.nonzero(mask)
    top, left = rows.min(), columns.min()
    box = mask[top : rows.max() + 1, left : columns.max() + 1]
    edges = np.flatnonzero(np.diff(box.ravel())) + 1
    runs = np.diff([0, *edges, box.size]).tolist()
    runs = [0, *runs] if box.ravel()[0] else runs
    place = {"left": left, "top": top, "width": box.shape[1], "height": box.shape[0]}
    return "mask", {"label": label, "rle": ", ".join(map(str, runs)), "z_order": order, **place}


def write_yolo(path, mask):
    """As Ultralytics stores polygons: class id, then x and y as fractions of the image."""
    lines = [
        f"{label - 1} {' '.join(f'{value:.6f}' for value in (corners / mask.shape[::-1]).ravel())}"
        for label, corners in parts_of(mask)
    ]
    put(path, "\n".join(lines).encode())
