"""What two folders of masks must hold to be paired: names that only look alike, and files that can't be reached."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from segmeter.errors import DataError
from segmeter.evaluation.score import score
from tests.data.crafted import encoded, put
from tests.data.volumes import VOLUME, save_volume
from tests.evaluation.masks import changed, put_masks, scoring

PICTURE = encoded(VOLUME[0])
NFC, NFD = "\u00e9", "e\u0301"


def put_pair(root: Path, reference: str, prediction: str) -> None:
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
    reference: str, prediction: str, shown: str, missing: str, tmp_path: Path
) -> None:
    put_pair(tmp_path, reference, prediction)
    with pytest.raises(
        DataError, match=rf"expected `a prediction` for every name, got none for 1: .*{shown}"
    ) as caught:
        scoring(tmp_path, missing=missing)
    assert len(caught.value.problems) == 1


def test_a_prediction_of_another_case_is_no_misspelt_one(tmp_path: Path) -> None:
    put_pair(tmp_path, "b", "extra")
    job = scoring(tmp_path, missing="as_background")
    assert (job.pairing.missing, job.pairing.extra) == (("b",), ("extra",))


@pytest.mark.parametrize("role", ["references", "predictions"])
@pytest.mark.parametrize("name", ["a.png", "a.nii.gz", "a.zarr"])
def test_a_link_to_itself_is_one_line(role: str, name: str, tmp_path: Path) -> None:
    other = {"references": "predictions", "predictions": "references"}[role]
    for folder in (role, other):
        put(tmp_path / folder / "b.png", PICTURE)
    put(tmp_path / other / "a.png", PICTURE)
    (tmp_path / role / name).symlink_to(name)
    with pytest.raises(DataError) as caught:
        scoring(tmp_path)
    (line,) = caught.value.problems
    assert f"{role}" in line
    assert "a.zarr" in line if name == "a.zarr" else "Too many levels of symbolic links" in line


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.png", "a.nii.gz"])
def test_a_folder_without_the_x_permission_is_one_line(name: str, tmp_path: Path) -> None:
    for role in ("references", "predictions"):
        for stem in "abc":
            put(tmp_path / role / name.replace("a", stem, 1), PICTURE)
    (tmp_path / "references").chmod(0o644)
    script = (
        "import sys; from pathlib import Path; from segmeter.errors import DataError\n"
        "from tests.evaluation.masks import scoring\n"
        "try: scoring(Path(sys.argv[1]))\n"
        "except DataError as error: print(*error.problems, sep='\\n')"
    )
    rights = "-dac_override,-dac_read_search"  # what lets root into any folder
    lesser = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"] if os.geteuid() == 0 else []
    try:
        done = subprocess.run(
            [*lesser, sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True
        )
    finally:
        (tmp_path / "references").chmod(0o755)
    folder = tmp_path / "references"
    assert done.stdout.splitlines() == [
        f"{folder}: expected `references` to be a folder whose files may be opened, "
        "got one without the x permission. Run chmod u+x on it."
    ]


def test_numbers_of_objects_beyond_int64_are_refused_by_name(tmp_path: Path) -> None:
    for role in ("references", "predictions"):
        save_volume(tmp_path / role / "a.npy", np.uint64([[0, 2**63], [2**63 - 1, 0]]))
    with pytest.raises(DataError, match=r"a\.npy: .*numbers of objects below 2\^63, got 9223372036854775808\. Number"):
        score(changed(scoring(tmp_path), instances=True))


def test_missing_predictions_are_counted_and_ten_are_named_or_are_scored_as_background(tmp_path: Path) -> None:
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
