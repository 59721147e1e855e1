"""Turns stored mask values into labels by the label map, and refuses every value that is not a label."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from segmeter.checks import shorten
from segmeter.classes import CORE, IGNORED_KEY, ClassSpec
from segmeter.data.files.refusals import file_error

_MANY_PARTS = 4
_BLURRED = 8  # This many different wrong values suggest anti-aliasing.


def check_nodata(
    path: Path, nodata: float | str | None, values: np.ndarray, *, spec: ClassSpec, label_map: Mapping[str, int] | None
) -> None:
    """Refuse a map, or lines of it, in which pixels without data would count as a class or object.

    Parameters
    ----------
    path
        Only used in messages.
    nodata
        The value that the file gives to pixels without data; a text if it is not a number, None if there is none.
    values
        The stored values.
    spec
        The classes.
    label_map
        With a label map every stored value is defined, so nothing is left to refuse. None for object numbers.
    """
    if isinstance(nodata, str) and not label_map:
        rule, remedy = "to be a number", "Write one, clear the tag, or say what each value is: data.label_map."
        raise file_error(path, "nodata (GDAL_NODATA)", rule, repr(nodata), remedy)
    if nodata is None or isinstance(nodata, str):
        return
    is_class = not label_map and 0 <= nodata < spec.num_values
    is_counted = not spec.is_ignored(nodata) if label_map is None else is_class
    pixels = int(np.count_nonzero(values == nodata)) if is_counted else 0
    if not pixels:
        return
    if label_map is None:
        rule, remedy = f"to be {IGNORED_KEY}", "Write that there, or clear the tag where no data are missing."
    else:
        meaning = f"{{{nodata:g}: 255, ...}} with {IGNORED_KEY}=255, or {{{nodata:g}: 0, ...}}"
        rule, remedy = "to be no class", f"Say what they are: data.label_map={meaning}."
    raise file_error(path, "nodata", f"{rule}, as {pixels} pixels have it", f"{nodata:g}", remedy)


def split_objects(path: Path, numbers: np.ndarray, spec: ClassSpec) -> tuple[np.ndarray, np.ndarray]:
    """Turn a map of object numbers into labels and objects.

    Parameters
    ----------
    path
        Only used in messages.
    numbers : (H, W) or (D, H, W), integer
        The object of each pixel, with 0 for no object. Pixels with the ignored value of the spec are ignored.
    spec
        The classes of a binary task.

    Returns
    -------
    Labels of `spec.label_dtype`, 1 inside any object, and the numbers with 0 for ignored pixels.

    Raises
    ------
    DataError
        A number is negative or too large.
    """
    if numbers.dtype.kind == "i" and numbers.min(initial=0) < 0:
        raise file_error(path, "mask", "to hold numbers of objects >= 0", int(numbers.min()))
    if numbers.dtype == np.uint64 and numbers.max(initial=0) > np.iinfo(np.int64).max:
        rule, remedy = "to hold numbers of objects below 2^63", "Number them from 1."
        raise file_error(path, "mask", rule, int(numbers.max()), remedy)
    ignored = spec.is_ignored(numbers)
    return spec.ignoring(numbers != 0, ignored), np.where(ignored, numbers.dtype.type(0), numbers)


def mark_cores(labels: np.ndarray, instances: np.ndarray, *, depth: float) -> np.ndarray:
    """Mark the cores of objects in a training target, so that a model learns where one object ends and the next begins.

    Parameters
    ----------
    labels : (H, W)
        1 inside of objects.
    instances : (H, W)
        The object number of each pixel, with 0 for no object.
    depth
        Pixels between a core and the outermost pixels of its object. In smaller objects, the deepest pixels are the
        core. The image's edge does not count as outside.

    Returns
    -------
    A copy of `labels` with `CORE` in cores.

    Examples
    --------
    >>> instances = np.array([[1, 1, 1, 1, 2, 2, 2, 0]])
    >>> mark_cores((instances > 0).astype(np.uint8), instances, depth=2)
    array([[2, 2, 1, 1, 1, 2, 1, 0]], dtype=uint8)
    """
    from scipy import ndimage  # slow to load, and only training needs it

    outermost = np.zeros(labels.shape, bool)
    differs_below = instances[1:] != instances[:-1]
    differs_right = instances[:, 1:] != instances[:, :-1]
    for lines, changed in ((outermost, differs_below), (outermost.T, differs_right.T)):
        lines[1:] |= changed
        lines[:-1] |= changed
    if not outermost.any():
        return np.where(labels == 1, CORE, labels).astype(labels.dtype)
    distances = ndimage.distance_transform_edt(~outermost)
    numbers, object_index = np.unique(instances, return_inverse=True)
    object_index = object_index.reshape(labels.shape)
    deepest = np.asarray(ndimage.maximum(distances, object_index, np.arange(numbers.size)))
    is_core = (labels == 1) & (distances >= np.minimum(deepest, depth)[object_index])
    return np.where(is_core, CORE, labels).astype(labels.dtype)


def doubt_object_numbers(path: Path, numbers: np.ndarray, others: np.ndarray, side: str = "predictions") -> str:
    """Find out whether a map of object numbers holds labels instead: it has one number, and the other side has objects.

    Parameters
    ----------
    path
        Only used in messages.
    numbers, others
        Object numbers of one side, and of the other side.
    side
        The side of `numbers`, "references" or "predictions".

    Returns
    -------
    A warning if it may be a label; otherwise "". Touching objects of one label are one part, and so is a single object.

    Raises
    ------
    DataError
        It is certainly a label: the number lies in about as many separate parts as there are objects. Because one
        object may lie in two or three parts, at least `_MANY_PARTS` are needed for that.
    """
    number = int(numbers.max(initial=0))
    if not number or (numbers != number).all() or ((numbers != number) & (numbers != 0)).any():
        return ""
    from scipy import ndimage  # slow to load and rarely needed

    objects = len(np.unique(others[others != 0]))
    parts = int(ndimage.label(numbers, ndimage.generate_binary_structure(numbers.ndim, numbers.ndim))[1])
    key = "references" if side == "predictions" else "predictions"
    if objects < 2 or parts < _MANY_PARTS or 2 * parts < objects:
        advice = f"if it is a label, set data.instances={key}, or in Python number its objects first"
        return f"{side} have one number where the other side has objects; {advice}" if objects >= _MANY_PARTS else ""
    content = f"one number, {number}, in {parts} separate parts, where the other side has {objects} objects"
    remedy = f"If it is a label, set data.instances={key}, or in Python number its connected parts first."
    raise file_error(path, "mask", "to hold numbers of objects", content, remedy)


def split_codes(
    path: Path, codes: np.ndarray, *, spec: ClassSpec, label_map: Mapping[str, int], divisor: int
) -> tuple[np.ndarray, np.ndarray]:
    """Turn values of class * divisor + number, such as Cityscapes' instanceIds, into labels and objects.

    Parameters
    ----------
    path, spec, label_map
        As for `to_labels`.
    codes : (H, W) or (D, H, W), integer
        A value below `divisor` is the class of a pixel that belongs to no object.
    divisor
        1000 in Cityscapes.

    Returns
    -------
    Labels of `spec.label_dtype`, and the codes with 0 for pixels that are ignored or belong to no object.

    Raises
    ------
    DataError
        As `to_labels` does.
    """
    in_object = codes >= divisor
    # codes are not divided without need, because a divisor such as 1000 does not fit into codes of 8 bits
    classes = np.where(in_object, codes // divisor, codes) if in_object.any() else codes
    labels = to_labels(path, classes.reshape(-1, codes.shape[-1]), spec=spec, label_map=label_map).reshape(codes.shape)
    return labels, np.where(in_object & spec.valid(labels), codes, 0).astype(codes.dtype, copy=False)


def to_labels(
    path: Path, values: np.ndarray, *, spec: ClassSpec, label_map: Mapping[str, int], nodata: float | str | None = None
) -> np.ndarray:
    """Turn the stored values of one mask into labels.

    Parameters
    ----------
    path
        Only used in messages.
    values : (H, W) integers, or (H, W, 3) uint8 colours
    spec
        The labels that exist.
    label_map
        Maps "value" or "red,green,blue" to a label. If it is empty, values are labels.
    nodata
        The value that the file gives to pixels without data, see `check_nodata`.

    Returns
    -------
    (H, W) of `spec.label_dtype`.

    Raises
    ------
    DataError
        A value is not a label, or not in the label map; or pixels without data would be a class.
    """
    check_nodata(path, nodata, values, spec=spec, label_map=label_map)
    codes = values
    has_colours = values.ndim == 3
    if has_colours:
        wide = values.astype(np.int32)
        codes = (wide[..., 0] << 16) | (wide[..., 1] << 8) | wide[..., 2]
    if codes.dtype in (np.uint8, np.uint16):
        # comparing runs at memory speed, while counting values takes as long as decoding
        if not label_map and ((codes < spec.num_values) | spec.is_ignored(codes)).all():
            return codes.astype(spec.label_dtype, copy=False)
        all_counts = np.bincount(codes.ravel(), minlength=1)
        present, index_of_pixel = np.flatnonzero(all_counts), None
        counts = all_counts[present]
    else:  # colours, and wide or signed integers
        present, index_of_pixel, counts = np.unique(codes, return_inverse=True, return_counts=True)

    def write(code: int) -> str:
        return f"{code >> 16},{code >> 8 & 255},{code & 255}" if has_colours else str(code)

    known = label_map or {str(label): label for label in spec.values}
    labels = [known.get(write(int(value)), -1) for value in present]
    unknown = [f"{write(int(present[k]))} ({counts[k]} pixels)" for k, label in enumerate(labels) if label < 0]
    if unknown:
        ignored = f" and {spec.unlabelled_value} (ignored)" if spec.has_ignored else ""
        listed = f"what data.label_map names: {shorten(list(label_map), separator='; ')}" if label_map else ""
        rule = f"to hold only {listed or f'0 to {spec.num_values - 1}{ignored}'}"
        remedy = _remedy(present, counts, len(unknown), spec, label_map)
        raise file_error(path, "mask", rule, shorten(unknown, rest="more values"), remedy)
    if index_of_pixel is not None:
        return np.asarray(np.asarray(labels, spec.label_dtype)[index_of_pixel].reshape(codes.shape))
    lookup = np.zeros(len(all_counts), spec.label_dtype)
    lookup[present] = labels
    return np.asarray(lookup[codes])


def _remedy(present: np.ndarray, counts: np.ndarray, wrong: int, spec: ClassSpec, label_map: Mapping[str, int]) -> str:
    """Return advice for the likeliest cause of `wrong` values that are not labels, among those that are `present`."""
    if label_map and set(present.tolist()) <= set(spec.values):
        return "The values are labels already: leave data.label_map out, or name all of them in it."
    if label_map:
        return "Add the missing values to data.label_map." if wrong < _BLURRED else _BLUR_TEXT
    if wrong >= _BLURRED:
        # Object numbers are 1 to N with few gaps, and no number has most of the pixels. Where edges of labels are
        # blurred, nearly all pixels keep the labels, and few have values in between.
        numbers, pixels = present[present > 0], counts[present > 0]
        are_objects = present[0] >= 0 and 10 * len(numbers) >= 9 * numbers[-1] and 2 * pixels.max() < pixels.sum()
        return _OBJECTS_TEXT if are_objects else _BLUR_TEXT
    if present[0] < 0:
        return "Labels are never negative: name these values in data.label_map."
    if set(present) <= {0, 255}:
        return f"If 255 is the object, set 'data.label_map={{0: 0, 255: 1}}'; if it is ignored, {IGNORED_KEY}=255."
    if present.tolist() == list(range(1, spec.num_classes + 1)):
        return "Labels start at 0: if these start at 1, map them with 'data.label_map={1: 0, 2: 1, ...}'."
    return f"Name more classes in data.classes, set {IGNORED_KEY}, or map the values with data.label_map."


_OBJECTS_TEXT = (
    "Values from 1 to N look like numbers of objects: set data.task=binary data.instances=true to read them that way. "
    "If each is a class, name them in data.classes or map them with data.label_map."
)
_BLUR_TEXT = (
    "So many values speak for anti-aliased or resampled edges: save the labels again, resized by nearest only. "
    "If each is a label, map them with data.label_map."
)
