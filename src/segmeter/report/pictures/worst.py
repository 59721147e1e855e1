"""Lists the worst cases of a run, and crops each where it is most wrong, to look at and to label again.

* worst.csv                                one row per case, the worst first
* worst/<case>/image.png                   as stored; an image that is not 8-bit grey or colour is made visible
* worst/<case>/target.png, prediction.png  for multilabel, one per class: target-<class>.png
* worst/<case>/crop.json                   the position of the crop
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from segmeter.classes import ClassSpec
from segmeter.export.formats import class_folder, encode_labels_png
from segmeter.files import csv_bytes, fresh_folder, safe_id, write_bytes, write_json
from segmeter.metrics.cases.stored import open_cases
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.scoreboard import build_scoreboard
from segmeter.records import read_json
from segmeter.report.figures import title

FOLDER, LIST, PLACE = "worst", "worst.csv", "crop.json"
EDGE = 256  # Longest side of a crop, pixels.
_CELL = 16  # Crops begin at multiples of this.
_PLACES = ("wrong_pixels", "crop_top", "crop_left", "crop_height", "crop_width", "crop_wrong_pixels", "slice")


def crops_path(folder: Path, case_id: str) -> Path:
    """Return the folder of a case's crops, below a run's folder."""
    return folder / FOLDER / safe_id(case_id)


def write_crops(
    folder: Path,
    case_id: str,
    spec: ClassSpec,
    *,
    image: NDArray[Any],
    target: NDArray[Any],
    labels: NDArray[Any],
    corner: tuple[int, int] = (0, 0),
    wrong_pixels: int | None = None,
    plane_number: int | None = None,
) -> None:
    """Write the crop of a case that contains the most wrong pixels.

    Parameters
    ----------
    folder
        The run's folder.
    image : (H, W, C)
    target, labels : (H, W), or (K, H, W) for multilabel
    corner
        Row and column of the case at which the arrays begin.
    wrong_pixels
        Number of wrong pixels of the case; None: count those of the arrays.
    plane_number
        The plane of a volume, from 1; the column `slice` of the list.
    """
    from segmeter.report.pictures import maps  # slow to load, and a run without images needs none

    wrong = maps.find_wrong(maps.classify_errors(target, labels, spec))
    window = rows, columns = find_crop(wrong)
    top, left = corner[0] + rows.start, corner[1] + columns.start
    count = int(wrong.sum()) if wrong_pixels is None else wrong_pixels
    facts = count, top, left, *wrong[window].shape, int(wrong[window].sum()), plane_number
    with fresh_folder(crops_path(folder, case_id)) as fresh:
        is_8_bit = image.dtype == np.uint8 and image.shape[-1] in (1, 3)
        shown = np.ascontiguousarray(image[window] if is_8_bit else maps.display_image(image[window]))
        write_bytes(fresh / "image.png", maps.encode(shown[..., 0] if shown.shape[-1] == 1 else shown, "PNG"))
        for name, label_map in (("target", target), ("prediction", labels)):
            crop = np.ascontiguousarray(label_map[..., rows, columns], spec.label_dtype)
            planes = [(name, crop, spec)]
            if spec.is_multilabel:
                stems = [f"{name}-{class_folder(class_name)}" for class_name in spec.names]
                planes = [(stems[k], plane, spec.of_plane(k)) for k, plane in enumerate(crop)]
            for stem, plane, its_spec in planes:
                content = encode_labels_png(plane, its_spec.colours, ignore_index=its_spec.ignore_index)
                write_bytes(fresh / f"{stem}.png", content)
        write_json(fresh / PLACE, dict(zip(_PLACES, facts, strict=True)))


def find_crop(wrong: NDArray[np.bool_]) -> tuple[slice, slice]:
    """Find the window of at most `EDGE` x `EDGE` pixels with the most wrong ones, to within `_CELL` pixels."""
    sums: NDArray[Any] = wrong
    for axis, side in enumerate(wrong.shape):
        cells = np.add.reduceat(sums, range(0, side, _CELL), axis=axis, dtype=np.int64)
        sums = sliding_window_view(cells, min(EDGE // _CELL, cells.shape[axis]), axis).sum(-1)
    corner = np.unravel_index(int(sums.argmax()), sums.shape)
    starts = (min(_CELL * int(cell), max(0, side - EDGE)) for cell, side in zip(corner, wrong.shape, strict=True))
    rows, columns = (slice(start, min(start + EDGE, side)) for start, side in zip(starts, wrong.shape, strict=True))
    return rows, columns


def write_worst_list(folder: Path, spec: ClassSpec, metrics: MetricsConfig, count: int) -> None:
    """Write worst.csv from the rows of a finished run and its crops: the worst case first, with its weakest class.

    Parameters
    ----------
    count
        The largest number of cases; 0 writes no list. Cases without a defined score are left out.
    """
    if not count:
        return
    board = build_scoreboard(open_cases([folder]), spec, metrics)
    scores = board.values(board.headline)
    iou = np.stack([board.values(f"iou/{name}") for name in spec.names], axis=1)
    lines: list[list[Any]] = [["case_id", title(board.headline), "weakest_class", "weakest_iou", *_PLACES, "crops"]]
    for i in board.worst_first()[:count]:
        weakest = None if np.isnan(iou[i]).all() else int(np.nanargmin(iou[i]))
        weakest_class = [None, None] if weakest is None else [spec.names[weakest], float(iou[i, weakest])]
        crops = crops_path(folder, board.run.case_ids[i])
        facts = dict[str, Any]()
        with suppress(OSError, ValueError):  # an interrupted run may lack some
            facts = {**read_json(crops / PLACE), "crops": crops.relative_to(folder).as_posix()}
        cells = (facts.get(name) for name in (*_PLACES, "crops"))
        lines.append([board.run.case_ids[i], float(scores[i]), *weakest_class, *cells])
    write_bytes(folder / LIST, csv_bytes(lines))
