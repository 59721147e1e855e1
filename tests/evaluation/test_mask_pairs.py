"""Masks, images and probabilities that are paired by name: names that only look alike, and files that do not fit."""

import json
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from segmeter.data.images import read_image
from segmeter.data.masks.reading import hash_map
from segmeter.errors import ConfigError, DataError
from segmeter.evaluation import drive
from segmeter.evaluation.drive import MemoryBudget
from segmeter.evaluation.manifest import check_same
from segmeter.evaluation.mask_pairs import find_probs, hash_pair, read_case_image
from segmeter.evaluation.score import measure_probs, score
from segmeter.metrics.calibration_file import summarise_calibration
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.config.measures import ContentConfig
from segmeter.metrics.probabilities import Calibration
from tests.data.crafted import THREE, encoded, noise, put
from tests.data.volumes import VOLUME
from tests.evaluation.masks import FEW, changed, put_masks, put_sides, scoring

PICTURE = encoded(VOLUME[0])
NFC, NFD = "\u00e9", "e\u0301"


def put_pair(root, reference, prediction):
    for role, name in (("references", reference), ("predictions", prediction)):
        put(root / role / "other.png", PICTURE)
        put(root / role / f"{name}.png", PICTURE)


@pytest.mark.parametrize("missing", ["error", "as_background"])
@pytest.mark.parametrize(
    ("reference", "prediction", "shown"),
    [
        pytest.param(NFC, NFD, r"'\\xe9' and 'e\\u0301' differ only", id="72-NFC-and-NFD"),
        pytest.param(NFD, NFC, r"'e\\u0301' and '\\xe9' differ only", id="72-NFD-and-NFC"),
        pytest.param("Case_A", "case_a", "'Case_A' and 'case_a' differ only", id="100-letter-case"),
    ],
)
def test_a_prediction_whose_name_only_looks_like_its_references_is_not_a_missing_one(
    reference, prediction, shown, missing, tmp_path
):
    put_pair(tmp_path, reference, prediction)
    rule = rf"expected `a prediction` for every name, got none for 1: .*{shown}"
    with pytest.raises(DataError, match=rule) as caught:
        scoring(tmp_path, missing=missing)
    assert len(caught.value.problems) == 1


def test_a_prediction_of_another_case_is_no_misspelt_one(tmp_path):
    put_pair(tmp_path, "b", "extra")
    job = scoring(tmp_path, missing="as_background")
    assert (job.pairing.missing, job.pairing.extra) == (("b",), ("extra",))


@pytest.mark.parametrize(("target", "said"), [("nothing.png", "No such file or directory"), (None, "Too many levels")])
def test_links_that_lead_nowhere_or_to_themselves_are_named_together_before_a_run_begins(target, said, tmp_path):
    put_pair(tmp_path, "a", "a")
    for path in (tmp_path / "references" / "other.png", tmp_path / "predictions" / "a.png"):
        path.unlink()
        path.symlink_to(target or path.name)
    for refuse in (scoring(tmp_path).pairing.fingerprint, partial(score, scoring(tmp_path))):
        with pytest.raises(DataError) as caught:
            refuse()
        lines = sorted(line.partition(f"{tmp_path}/")[2] for line in caught.value.problems)
        assert len(lines) == 2
        for line, name in zip(lines, ("predictions/a.png", "references/other.png"), strict=True):
            assert line.startswith(f"{name}: expected `file` to be readable, got {said}")


def test_numbers_of_objects_beyond_int64_are_refused_by_name(tmp_path):
    put_sides(tmp_path, *[np.uint64([[0, 2**63], [2**63 - 1, 0]])] * 2, "a.npy")
    with pytest.raises(DataError, match=r"a\.npy: .*numbers of objects below 2\^63, got 9223372036854775808\. Number"):
        score(changed(scoring(tmp_path), instances=True))


def test_missing_predictions_are_counted_and_ten_are_named_or_are_scored_as_background(tmp_path):
    put_masks(tmp_path / "references", {f"c{i:02}": [[0, 1]] for i in range(13)})
    put_masks(tmp_path / "predictions", {"stray": [[0, 1]]})
    with pytest.raises(DataError, match="none for 13: c00"):  # no name in common: these are other folders
        scoring(tmp_path, missing="as_background")
    put_masks(tmp_path / "predictions", {"c00": [[0, 1]]})
    with pytest.raises(DataError, match=r"none for 12: c01, .*c10 and 2 more\. .*missing=as_background"):
        scoring(tmp_path)
    summary = score(scoring(tmp_path, missing="as_background"))
    assert summary["missing_predictions"] == {"n": 12, "cases": [f"c{i:02}" for i in range(1, 13)]}
    assert (summary["n_cases"], summary["extra_predictions"]) == (13, 1)
    assert summary["confusion_matrix"] == [[13, 0, 0], [12, 1, 0], [0, 0, 0]]
    assert [row.extra["missing"] for row in read_cases(tmp_path)] == [0.0, *[1.0] * 12]


@pytest.fixture
def beside(tmp_path):
    for seed in range(3):
        for folder in ("references", "predictions"):
            put(tmp_path / folder / f"c{seed}.png", noise(20, 30, None, seed=seed) % 3)
        put(tmp_path / "images" / f"c{seed}.png", np.full((20, 30, 3), 51 * seed, np.uint8))
    found = scoring(tmp_path, spec=THREE)
    return replace(found, metrics=FEW.replace(measures=(ContentConfig(),)))


def with_images(job, folder):
    pairs = [replace(pair, image=folder / f"{pair.stem}.png") for pair in job.pairing.pairs]
    return replace(job, pairing=replace(job.pairing, pairs=pairs))


def test_brightness_is_that_of_the_images_if_there_are_any_and_a_run_without_them_is_another_one(beside, tmp_path):
    score(beside)
    assert not any("brightness/image" in row.scores for row in read_cases(tmp_path))
    seeing = with_images(beside, tmp_path / "images")
    with pytest.raises(ConfigError, match="`images` was False and is True now"):
        check_same(tmp_path, seeing.identity(), ["c0", "c1", "c2"])
    score(seeing)
    assert [row.scores["brightness/image"] for row in read_cases(tmp_path)] == [0.0, 0.2, 0.4]


def test_an_image_of_another_size_is_named(beside, tmp_path):
    put(tmp_path / "images" / "c1.png", np.zeros((20, 31), np.uint8))
    with pytest.raises(DataError, match=r"c1\.png: expected `image` to have the size of its reference, 20 x 30, got"):
        score(with_images(beside, tmp_path / "images"))


def test_volumes_are_read_with_a_channel(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(24, dtype=np.int16).reshape(2, 3, 4))
    found, digest = read_case_image(tmp_path / "a.npy", (2, 3, 4), max_pixels=100)
    assert (found.shape, found.dtype) == ((2, 3, 4, 1), np.float32)
    assert found.ravel().tolist() == list(range(24))
    assert digest == hash_map(tmp_path / "a.npy")
    with pytest.raises(DataError, match=r"2 x 3 x 5, got 2 x 3 x 4 \(depth x height x width\)"):
        read_case_image(tmp_path / "a.npy", (2, 3, 5), max_pixels=100)


@pytest.fixture
def held(tmp_path):
    """Three cases of other sizes, a strip of each ignored, and their probabilities."""
    rng = np.random.default_rng(0)
    (tmp_path / "probs").mkdir()
    for i, name in enumerate("abc"):
        shape = (20, 30 + i)
        probs = np.moveaxis(rng.dirichlet((1, 1, 1), shape), -1, 0).astype(np.float32)
        target = rng.integers(0, 3, shape, dtype=np.uint8)
        target[:, :3] = 255
        put(tmp_path / "references" / f"{name}.png", target)
        put(tmp_path / "predictions" / f"{name}.png", probs.argmax(axis=0).astype(np.uint8))
        np.save(tmp_path / "probs" / f"{name}.npy", probs)
    found = scoring(tmp_path)
    return replace(found, probs=find_probs(tmp_path / "probs", found.pairing.pairs))


def test_the_summary_has_what_the_arrays_give(held, tmp_path):
    summary = score(held)
    sums = Calibration(num_classes=3, ignore_index=255)
    for name in "abc":
        target = read_image(tmp_path / "references" / f"{name}.png", max_pixels=10_000)[..., 0]
        sums.update(target, np.load(tmp_path / "probs" / f"{name}.npy"))
    assert summary["calibration"] == summarise_calibration(sums.compute(), THREE)
    assert summary["calibration"]["n"] == 20 * (27 + 28 + 29)
    assert all(50 < len(one["curve"]["recall"]) <= 101 for one in summary["calibration"]["per_class"].values())
    assert json.loads((tmp_path / "metrics.json").read_text()) == summary


def test_everything_that_is_wrong_with_the_files_is_said_at_once(held, tmp_path):
    np.save(tmp_path / "probs" / "a.npy", np.ones((3, 20, 30), np.float32))
    np.save(tmp_path / "probs" / "b.npy", np.ones((2, 20, 31), np.float32))
    (tmp_path / "probs" / "c.npy").write_bytes(b"no array")
    hashes = {pair.case_id: hash_pair(pair) for pair in held.pairing.pairs}
    with pytest.raises(DataError) as caught:
        measure_probs(held.scorer(), held.pairing.pairs, held.probs, measured=hashes)
    first, second, third = caught.value.problems
    assert "a.npy" in first
    assert "to sum to 1 in every pixel" in first
    assert "`probs` to be (3, 20, 31) for a multiclass target (20, 31)" in second
    assert "c.npy" in third


def test_probabilities_wait_for_memory_and_memory_that_runs_out_is_named_by_its_case(held, monkeypatch):
    counting, most = threading.Lock(), []

    class Watched(MemoryBudget):
        def enter(self, needed, **options):
            super().enter(needed, **options)
            with counting:
                most.append(self._held)

    def fail(*_):
        raise MemoryError

    hashes = {pair.case_id: hash_pair(pair) for pair in held.pairing.pairs}
    measure = partial(measure_probs, held.scorer(), held.pairing.pairs, held.probs, measured=hashes)
    monkeypatch.setattr("segmeter.evaluation.score.MemoryBudget", lambda: Watched(1))
    monkeypatch.setattr(drive, "SMALL", 1)
    sums, _ = measure()
    assert sums.compute().n == 20 * (27 + 28 + 29)
    assert sorted(most) == [12 * 3 * 20 * width for width in (30, 31, 32)], "each case alone"
    monkeypatch.setattr(Calibration, "update", fail)
    with pytest.raises(DataError, match=r"case 'a': out of memory\. Free memory, cut the case into tiles") as caught:
        measure()
    assert len(caught.value.problems) == 3


def test_every_case_needs_its_file(held, tmp_path):
    (tmp_path / "probs" / "b.npy").unlink()
    with pytest.raises(DataError, match="none for 1: b"):
        find_probs(tmp_path / "probs", held.pairing.pairs)
    put(tmp_path / "probs" / "b.png", np.zeros((20, 31), np.uint8))
    with pytest.raises(DataError, match=r"to be an NPY or NPZ file, got \.png"):
        find_probs(tmp_path / "probs", held.pairing.pairs)
