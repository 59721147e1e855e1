"""Layers: exact maps, whatever the classes, and nothing half written."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.errors import InputError
from segmeter.report.pictures.chosen import read_notes
from segmeter.report.pictures.layers import draw_layers, layers_path, write_layers
from segmeter.report.pictures.objects import Objects

IMAGE = np.zeros((4, 6, 1), np.uint8)


def index_of(layers, name, entries):
    """Grey values back to entries, as the page does it."""
    with Image.open(io.BytesIO(layers.files[name])) as stored:
        values = np.asarray(stored).astype(int)
    return np.rint(values / (255 // max(1, entries - 1))).astype(int)


def map_of(layers, role):
    return next(each for each in layers.notes["maps"] if each["role"] == role)


def test_every_pixel_of_a_map_names_its_class_and_its_error(spec, rng):
    target, labels = rng.choice([0, 1, 2, 255], (2, 4, 6)).astype(np.uint8)
    layers = draw_layers(IMAGE, target, labels, spec, edge=128)
    for role, wanted in (("target", target), ("prediction", labels)):
        entries = map_of(layers, role)["entries"]
        values = np.array([entry.get("class", 255) for entry in entries])
        np.testing.assert_array_equal(values[index_of(layers, f"{role}.png", len(entries))], wanted)
    assert layers.notes["classes"]["1"] == {"name": "tree", "colour": (0, 200, 0)}
    errors = index_of(layers, "errors.png", 5)
    np.testing.assert_array_equal((errors > 0) & (errors < 4), (target != labels) & (target != 255))
    np.testing.assert_array_equal(errors == 4, target == 255)


def test_each_plane_that_occurs_has_a_map(rng):
    spec = ClassSpec(task="multilabel", names=tuple("abcdefghi"), colours=((9, 9, 9),) * 9)
    labels = rng.integers(0, 2, (9, 4, 6)).astype(np.uint8)
    labels[4] = 0
    layers = draw_layers(IMAGE, None, labels, spec, edge=128)
    maps = layers.notes["maps"]
    assert [each["entries"][1]["class"] for each in maps] == [0, 1, 2, 3, 5, 6, 7, 8]
    for each in maps:
        np.testing.assert_array_equal(index_of(layers, each["file"], 2), labels[each["entries"][1]["class"]])


def test_many_classes_fit_and_rare_ones_share_an_entry():
    spec = ClassSpec(task="multiclass", names=tuple(map(str, range(400))), colours=((9, 9, 9),) * 400)
    labels = np.arange(20 * 40, dtype=np.uint16).reshape(20, 40) % 400
    labels[:, :2] = 7
    layers = draw_layers(np.zeros((20, 40, 1), np.uint8), None, labels, spec, edge=128)
    entries = map_of(layers, "prediction")["entries"]
    assert len(entries) == 255
    assert entries[-1]["name"] == "classes with fewer pixels"
    found = index_of(layers, "prediction.png", 255)
    for row, column in np.argwhere(found < 254):
        assert entries[found[row, column]]["class"] == labels[row, column]
    assert (labels == 7).sum() == (found == [e.get("class") for e in entries].index(7)).sum()


def test_a_thin_first_class_stays_whole_where_it_is_no_background():
    """A crack of one pixel's width, which would vanish behind the wall."""
    spec = ClassSpec(task="multiclass", names=("crack", "wall"), colours=((200, 0, 0), (0, 255, 0)))
    labels = 1 - np.eye(40, dtype=np.uint8)
    layers = draw_layers(labels[..., None], None, labels, spec, edge=10)
    np.testing.assert_array_equal(layers.maps[0].index, 1 - np.eye(10))


def test_each_object_has_its_kind_and_its_outline_on_both_sides(spec):
    target = np.zeros((6, 8), np.int64)
    target[:, :4], target[:, 4:] = 1, 2  # two that touch
    found = np.where(target == 1, 5, 0)
    objects = Objects(target=target, prediction=found)
    labels = [(each > 0).astype(np.uint8) for each in (target, found)]
    layers = draw_layers(np.zeros((6, 8, 3), np.uint8), *labels, spec, edge=128, objects=objects)
    files = [each["file"] for each in layers.notes["maps"] if each["role"] == "target"]
    assert files == ["target.png", "target-objects.png"]
    entries = [entry.get("name") for entry in map_of(layers, "errors")["entries"]]
    assert entries[1:4] == ["1 matched (IoU above 0.5)", "1 missed", "0 false"]
    kinds = index_of(layers, "errors.png", len(entries))
    assert kinds.tolist() == [[1, 1, 1, 5, 6, 2, 2, 2]] * 6  # their edges are stronger
    drawn = index_of(layers, "target-objects.png", 3)
    np.testing.assert_array_equal(np.unique(drawn[:, 3]), [1])  # the matched one's edge
    np.testing.assert_array_equal(np.unique(drawn[:, 4]), [2])  # the missed one's
    np.testing.assert_array_equal(drawn[:, :3], 0)
    found = index_of(layers, "prediction-objects.png", 3)
    np.testing.assert_array_equal(np.flatnonzero(found.any(axis=0)), [3])


def test_layers_replace_older_ones_whole(tmp_path, spec):
    labels = np.zeros((4, 6), np.uint8)
    write_layers(tmp_path, "../a", draw_layers(IMAGE, labels, labels, spec, edge=128))
    place = write_layers(tmp_path, "../a", draw_layers(IMAGE, None, labels, spec, edge=128))
    assert place == layers_path(tmp_path, "../a")
    assert sorted(path.name for path in place.iterdir()) == ["image.webp", "layers.json", "prediction.png"]
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    assert read_notes(place)["case"] == "../a"


@pytest.mark.parametrize("name", ["/etc/passwd", "../../mine.png", "a/b.png", "..", ""])
def test_notes_name_no_file_of_another_folder(tmp_path, name):
    """A page would show it. Mutation seen to fail: any text."""
    notes = {"case": "a", "shown": [1, 1], "maps": [{"role": "target", "file": name}]}
    (tmp_path / "layers.json").write_text(json.dumps(notes))
    with pytest.raises(InputError, match=r"layers\.json: .*maps\.0\.file: String should match pattern"):
        read_notes(tmp_path)


def test_reducing_averages_images_keeps_the_rarest_class_of_a_block_and_says_so():
    labels = np.arange(36, dtype=np.uint8).reshape(6, 6)
    labels[3:] = 30
    labels[5, 0] = 31
    spec = ClassSpec(task="multiclass", names=tuple(map(str, range(36))), colours=((9, 9, 9),) * 36)
    layers = draw_layers(labels[..., None], None, labels, spec, edge=2, notes={"slice": [3, 9]})
    assert (layers.notes["size"], layers.notes["shown"], layers.notes["slice"]) == ([6, 6], (2, 2), [3, 9])
    with Image.open(io.BytesIO(layers.files["image.webp"])) as image:
        assert image.size == (2, 2)
    entries = map_of(layers, "prediction")["entries"]
    found = index_of(layers, "prediction.png", len(entries))
    assert [[entries[k]["class"] for k in row] for row in found] == [[14, 17], [31, 30]]
    np.testing.assert_array_equal(layers.image[..., 0], [[7, 10], [30, 30]])


def test_a_case_above_the_overview_has_tiles_of_its_own_pixels_the_worst_first(tmp_path, spec):
    rng = np.random.default_rng(0)
    image, target = rng.integers(0, 255, (700, 1600, 3), dtype=np.uint8), np.zeros((700, 1600), np.uint8)
    labels = target.copy()
    labels[600:640, 1100:1140] = 1
    layers = draw_layers(image, target, labels, spec)
    tiles = layers.cut(labels != target)
    place = write_layers(tmp_path, "a", layers.reduce(1536), tiles=tiles)
    notes = [read_notes(place / f"tile-{k}") for k in range(len(tiles))]
    assert (len(notes), notes[0]["at"], notes[0]["shown"]) == (8, [512, 1024], [188, 512])
    np.testing.assert_array_equal(tiles[0].image, image[512:, 1024:1536])
    assert read_notes(place)["size"] == [700, 1600]
    files = {"image.webp", "target.png", "prediction.png", "errors.png", "layers.json"}
    assert {path.name for path in (place / "tile-0").iterdir()} == files
    assert draw_layers(image[:, :1536], None, labels[:, :1536], spec).cut(None) == []
