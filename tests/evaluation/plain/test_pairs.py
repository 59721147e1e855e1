"""Counts of two label PNGs row by row, against NumPy's counts of what Pillow reads."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmeter.classes import ClassSpec
from segmeter.evaluation.plain import pairs
from segmeter.evaluation.plain.pairs import PlainCounts, can_count, count_plain

LIMIT = 10**6


def spec_of(classes: int, *, ignore: int | None = 255, **more: object) -> ClassSpec:
    names = tuple(f"c{k}" for k in range(classes))
    return ClassSpec(task="multiclass", names=names, colours=((0, 0, 0),) * classes, ignore_index=ignore, **more)


def score(folder: Path, spec: ClassSpec, *, most: int = LIMIT) -> PlainCounts | None:
    (found,) = count_plain([(folder / "target.png", folder / "labels.png")], spec, max_pixels=most)
    return found


def draw(rng: np.random.Generator, shape: tuple[int, int], classes: int) -> np.ndarray:
    """Upright regions, level ones, noise and specks by bands, so that rows change from the one way to the other."""
    height, width = shape
    values = np.repeat(rng.integers(0, classes, (1, width // 9 + 1)), 9, 1)[:, :width].repeat(height, 0)
    for start in range(0, height, 12):
        noisy = rng.random((min(12, height - start), width)) < rng.choice([0, 0, 0.01, 0.3, 1])
        values[start : start + 12][noisy] = rng.integers(0, classes, noisy.sum())
    return values.astype(np.uint8)


def write(path: Path, samples: np.ndarray, kinds: np.ndarray) -> None:
    """A PNG with a filter of its own for each row; NumPy's arithmetic, none of the reader's."""
    wide = np.pad(samples.astype(int), ((1, 0), (1, 0)))
    a, b, c = wide[1:, :-1], wide[:-1, 1:], wide[:-1, :-1]
    distances = np.abs(np.stack([b - c, a - c, a + b - 2 * c]))
    guesses = np.stack([0 * a, a, b, (a + b) // 2, np.choose(distances.argmin(axis=0), [a, b, c])])
    residuals = (samples - guesses[kinds, np.arange(len(samples))]).astype(np.uint8)
    body = zlib.compress(np.concatenate([kinds[:, None].astype(np.uint8), residuals], axis=1).tobytes())
    header = struct.pack(">IIBBBBB", *samples.shape[::-1], 8, 0, 0, 0, 0)
    chunks = [name + content for name, content in ((b"IHDR", header), (b"IDAT", body), (b"IEND", b""))]
    whole = b"".join(struct.pack(">I", len(each) - 4) + each + struct.pack(">I", zlib.crc32(each)) for each in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + whole)


def by_numpy(folder: Path, classes: int, ignore: int | None) -> np.ndarray:
    target, labels = (
        np.asarray(Image.open(io.BytesIO((folder / name).read_bytes()))) for name in ("target.png", "labels.png")
    )
    kept = np.ones(target.shape, bool) if ignore is None else target != ignore
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (target[kept], labels[kept]), 1)
    return counts


@pytest.mark.parametrize("classes", [2, 19, 254])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (40, 8), (65, 16), (30, 17), (97, 130), (50, 400)], ids=str)
def test_counts_are_those_of_the_maps(classes, shape, tmp_path):
    """Every filter and both ways of counting, in turn.

    Mutations seen to fail: the pixels that fill up a row stay counted; `since` not moved on; the last rows not added;
    a flat word above is taken for one that equals its neighbour.
    """
    rng = np.random.default_rng(classes + 1000 * shape[1])
    for ignore in (255, None):
        target, labels = draw(rng, shape, classes), draw(rng, shape, classes)
        labels = np.where(rng.random((shape[0], 1)) < 0.7, target, labels)  # some rows agree
        if ignore is not None:
            target[: shape[0] // 4, shape[1] // 2 :] = ignore
        for name, values in (("target.png", target), ("labels.png", labels)):
            write(tmp_path / name, values, rng.choice([0, 1, 2, 2, 2, 3, 4, 4], shape[0]))
        found = score(tmp_path, spec_of(classes, ignore=ignore))
        assert found is not None
        assert (found.height, found.width) == shape
        assert found.target_crc32 == zlib.crc32(target.tobytes())
        assert found.counts.dtype == np.int64
        np.testing.assert_array_equal(found.counts, by_numpy(tmp_path, classes, ignore))


@pytest.mark.parametrize("change", ["target", "labels", "hidden", "filter", "size"])
def test_what_the_usual_way_has_to_decide_is_left_to_it(change, tmp_path):
    rng = np.random.default_rng(0)
    target, labels = draw(rng, (20, 30), 5), draw(rng, (20, 30), 5)
    target[3, 4] = 255
    kinds = np.zeros(20, int)
    if change in ("target", "labels"):
        {"target": target, "labels": labels}[change][11, 29] = 5
    labels[3, 4] = 77 if change == "hidden" else 0
    labels = labels[:-1] if change == "size" else labels
    write(tmp_path / "target.png", target, kinds)
    write(tmp_path / "labels.png", labels, kinds[: len(labels)])
    if change == "filter":
        body = zlib.compress(b"".join(bytes([5 * (y == 19)]) + row.tobytes() for y, row in enumerate(labels)))
        content = (tmp_path / "labels.png").read_bytes()[:33]
        for name, each in ((b"IDAT", body), (b"IEND", b"")):
            content += struct.pack(">I", len(each)) + name + each + struct.pack(">I", zlib.crc32(name + each))
        (tmp_path / "labels.png").write_bytes(content)
    assert score(tmp_path, spec_of(5)) is None


def test_classes_that_need_more_than_a_matrix_are_left_to_the_usual_way():
    assert can_count(spec_of(254))
    assert not can_count(spec_of(255, ignore=None))
    assert not can_count(spec_of(5, count_invalid=True))


def check_mutated_noise(folder: Path, seed: int, count: int) -> int:
    """Break one of two noisy files, half of them with the chunk's checksum mended; how many were still counted."""
    rng, counted = np.random.default_rng(seed), 0
    for _ in range(count):
        shape = (int(rng.integers(20, 50)), int(rng.integers(20, 60)))
        for name in ("target.png", "labels.png"):
            write(folder / name, rng.integers(0, 60, shape).astype(np.uint8), rng.integers(0, 2, shape[0]))
        path = folder / str(rng.choice(["target.png", "labels.png"]))
        content = bytearray(path.read_bytes())
        body = slice(41, len(content) - 16)
        for at in rng.integers(41, len(content) - 16, int(rng.integers(1, 3))):
            content[at] ^= 1 << int(rng.integers(8))
        if rng.random() < 0.5:
            found = zlib.decompressobj()
            try:
                samples = found.decompress(bytes(content[body])[:-4])  # the sum of what it holds now
                content[body.stop - 4 : body.stop] = zlib.adler32(samples).to_bytes(4, "big")
            except zlib.error:
                pass
        content[body.stop : body.stop + 4] = zlib.crc32(content[37 : body.stop]).to_bytes(4, "big")
        path.write_bytes(content)
        result = score(folder, spec_of(60))
        if result is not None:
            counted += 1
            np.testing.assert_array_equal(result.counts, by_numpy(folder, 60, 255), err_msg=content.hex())
    return counted


def test_noisy_files_that_were_damaged_are_left_alone_or_counted_as_pillow_reads_them(tmp_path):
    assert check_mutated_noise(tmp_path, 0, 300) > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_ten_thousand_damaged_noisy_files(seed, tmp_path):
    check_mutated_noise(tmp_path, seed, 1000)


def test_what_counts_is_compiled_once_and_without_a_file(monkeypatch):
    class Compiled:
        signatures: tuple[str, ...] = ()

        def __call__(self, names, starts, memory, most, ignore, found, *rest):
            assert names.tobytes() == b"\0\0"
            found[:] = 0
            self.signatures += ("called",)

    compiled = Compiled()
    monkeypatch.setattr(pairs, "_compiled", lambda: compiled)
    for _ in range(2):
        pairs.prepare(spec_of(3))
    assert compiled.signatures == ("called",)
