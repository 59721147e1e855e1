"""Which runs are the folds of one cross-validation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from segmeter.errors import InputError
from segmeter.evaluation.pieces import Piece, check_pieces


def fold(number: int, count: int | None = 3, **values: Any) -> Piece:
    """The evaluation of a fold, on two cases of its own."""
    identity = {
        "data.fold": count and f"{number}/{count}",
        "data.split": "val",
        "data.split_seed": 0,
        "data.mean": [number / 10],
        "files.checkpoint_sha256": f"checkpoint {number}",
        "files.data": f"data {number}",
    }
    return Piece(
        folder=Path(f"run{number}"),
        command="eval",
        identity=identity | values,
        shard={},
        records=pa.table({"case_id": [f"case{number}a", f"case{number}b"], "sha256": ["1"] * 2, "record": ["{}"] * 2}),
        inputs={},
        record={},
        spec=None,
    )


def problems_of(*pieces: Piece) -> list[str]:
    with pytest.raises(InputError) as caught:
        check_pieces(pieces, "folds")
    return list(caught.value.problems)


def test_all_folds_of_one_division_are_accepted() -> None:
    check_pieces([fold(3), fold(1), fold(2)], "folds")
    check_pieces([fold(1, None), fold(2, None)], "folds")


def test_missing_folds_are_named() -> None:
    assert problems_of(fold(1, 5), fold(4, 5)) == [
        "merge: expected `runs` to be all 5 folds, got none of fold 2/5, 3/5, 5/5."
    ]


def test_a_checkpoint_is_no_fold_twice() -> None:
    pieces = [fold(1), fold(2, **{"files.checkpoint_sha256": "checkpoint 1"}), fold(3)]
    assert problems_of(*pieces) == [
        "merge: expected `runs` to be folds, each of a checkpoint of its own, got the same checkpoint in 2: run1, run2."
    ]
    check_pieces([replace(piece, identity={}) for piece in pieces], "folds")  # scores of masks know no checkpoint


@pytest.mark.parametrize("other", [fold(2, 4), fold(2, None)], ids=["count", "none"])
def test_folds_of_two_divisions_are_no_cross_validation(other: Piece) -> None:
    (problem,) = problems_of(fold(1), other, fold(3))
    assert problem.startswith("merge: expected `data.fold` to be i/k with one k in all runs, got 3: ")


def test_the_training_cases_of_two_folds_are_no_result_though_they_share_none() -> None:
    (problem,) = problems_of(*(fold(number, 2, **{"data.split": "train"}) for number in (1, 2)))
    assert problem.startswith("merge: expected `data.split` to be val, the cases that a fold held out, in all runs")


def test_only_the_keys_of_a_fold_may_differ() -> None:
    assert problems_of(fold(1), fold(2, **{"data.split_seed": 1}), fold(3)) == [
        "merge: expected `data.split_seed` to be the same in all runs, 0 as in 'run1', got 1 in 'run2'."
    ]
