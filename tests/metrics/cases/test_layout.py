"""Arrays of a table's columns, cell by cell."""

import numpy as np
import pyarrow as pa
import pytest

from segmeter.metrics.cases._layout import floats, lists, terms


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (4, 2, 2)], ids=str)
def test_counts_of_a_case_are_one_list_row_by_row(shape):
    size = int(np.prod(shape))
    counts = [np.arange(size).reshape(shape) + 2**40 * i for i in range(3)]
    found = lists([counts[0], counts[1].T.copy().T, counts[2]], size)  # the second one in another order in memory
    assert found.type == pa.large_list(pa.int64())
    assert found.to_pylist() == [[2**40 * i + cell for cell in range(size)] for i in range(3)]
    assert lists([], size).to_pylist() == []


def test_terms_of_a_loss_are_two_columns_and_null_without_one():
    cases = [((1.5, 3.0), (0.25, 0.0)), (), ((2.0, 1.0),)]
    assert terms(cases, 0).to_pylist() == [[1.5, 0.25], None, [2.0]]
    assert terms(cases, 1).to_pylist() == [[3.0, 0.0], None, [1.0]]


def test_nan_and_nothing_are_null_and_infinity_is_a_number():
    assert floats([1.0, None, float("nan"), float("inf")]).to_pylist() == [1.0, None, None, float("inf")]
    assert floats(np.array([np.nan, 2.0])).to_pylist() == [None, 2.0]
    assert floats([None]).type == floats([1]).type == pa.float64()
