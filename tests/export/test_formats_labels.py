"""The label PNG against Pillow's reader, the format's own rules, and refusals."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from segmeter.errors import InputError
from segmeter.export.formats import IGNORE_COLOUR, UNUSED_COLOUR, encode_labels_png

COLOURS = [(0, 0, 0), (200, 10, 20), (30, 220, 40)]


def read(content):
    with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
        image.load()
        return image.mode, np.asarray(image), image.getpalette()


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 1), (5, 6), (33, 31)])
@pytest.mark.parametrize(
    ("dtype", "highest", "mode"),
    [
        *((np.uint8, highest, "P") for highest in (1, 2, 15, 16, 255)),
        *((np.uint16, highest, "I;16") for highest in (0, 255, 256, 65535)),
    ],
)
def test_values_come_back_exactly(rng, dtype, highest, mode, shape):
    labels = rng.integers(0, highest + 1, shape).astype(dtype)
    labels.flat[-1] = highest
    found = read(encode_labels_png(labels, COLOURS))
    assert found[0] == mode
    np.testing.assert_array_equal(found[1], labels)


@pytest.mark.parametrize(
    "view",
    [lambda a: a[::-1], lambda a: a[:, ::-2], lambda a: a.T, lambda a: a.astype(">u2"), np.asfortranarray],
    ids=["upside down", "stepped", "transposed", "big-endian", "Fortran"],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_any_memory_layout_is_written_right_and_left_alone(rng, view, dtype):
    labels = view(rng.integers(0, 200, (12, 9)).astype(dtype))
    before = labels.copy()
    labels.setflags(write=False)
    content = encode_labels_png(labels, COLOURS)
    np.testing.assert_array_equal(read(content)[1], labels)
    np.testing.assert_array_equal(labels, before)
    assert encode_labels_png(before, COLOURS) == content, "equal maps give equal bytes"


def test_palette_holds_class_colours_then_magenta_and_grey_for_ignored():
    labels = np.array([[0, 1, 2, 3, 200, 255]], np.uint8)
    palette = np.array(read(encode_labels_png(labels, COLOURS, ignore_index=255))[2]).reshape(-1, 3)
    np.testing.assert_array_equal(palette[:3], COLOURS)
    assert tuple(palette[3]) == tuple(palette[200]) == UNUSED_COLOUR
    assert tuple(palette[255]) == IGNORE_COLOUR


def test_a_file_is_no_larger_than_pillows_and_a_map_of_large_regions_comes_back(rng):
    labels = np.kron(rng.integers(0, 5, (16, 16)), np.ones((19, 16))).astype(np.uint8)
    image, reference = Image.fromarray(labels), io.BytesIO()
    image.putpalette([0] * 768)
    image.save(reference, "PNG")
    content = encode_labels_png(labels, COLOURS)
    assert len(content) <= len(reference.getvalue())
    np.testing.assert_array_equal(read(content)[1], labels)


def test_small_label_values_take_four_bits():
    content = encode_labels_png(np.full((3, 5), 2, np.uint8), COLOURS)
    assert struct.unpack(">4sIIBBBBB", content[12:29]) == (b"IHDR", 5, 3, 4, 3, 0, 0, 0)
    assert struct.unpack(">I4s", content[33:41]) == (3 * 16, b"PLTE")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        *((np.zeros((2, 2), dtype), rf"{dtype} \(2, 2\)") for dtype in ("int64", "float32", "bool", "uint32")),
        (np.zeros((1, 2, 2), np.uint8), r"\(1, 2, 2\)"),
        (np.zeros((0, 2), np.uint8), "at least one pixel"),
    ],
)
def test_other_arrays_and_more_colours_than_a_palette_holds_are_refused(labels, said):
    with pytest.raises(InputError, match=said):
        encode_labels_png(labels, COLOURS)
    with pytest.raises(InputError, match="at most 256 for uint8 labels, got 257"):
        encode_labels_png(np.zeros((1, 1), np.uint8), [(0, 0, 0)] * 257)
