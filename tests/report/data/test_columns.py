"""Columns through the block and back: what the page reads is what was measured, to the digits that it shows."""

import numpy as np
import pytest

from segmeter.report.data.columns import Column, pack_page, unpack_page, within


def column(kind, values, key="x"):
    return Column(key=key, label="", values=values, kind=kind, group="")


def back(kind, values):
    return unpack_page(pack_page({}, [column(kind, values)]))["columns"][0]


def test_scores_keep_four_decimals_and_undefined(rng):
    values = np.concatenate([rng.random(100), [0, 1, np.nan]])
    np.testing.assert_allclose(back("score", values)["values"], values, atol=5.0001e-5)


def test_numbers_keep_five_digits_and_infinity(rng):
    values = np.concatenate([np.exp(rng.normal(0, 9, 200)), [0, np.inf, -np.inf, np.nan, -3.5]])
    np.testing.assert_allclose(back("number", values)["values"], values, rtol=1e-5)


@pytest.mark.parametrize("largest", [2**31 - 1, 2**31, 2**53 - 1])
def test_counts_are_exact(largest):
    values = [0, -1, largest]
    assert back("count", values)["values"].tolist() == values


def test_texts_and_choices_come_back_in_any_language():
    texts = ["größer", "</script>", "", "\u202egnp", "größer", "\udce4"]
    clean = [*texts[:-1], "?"]
    assert back("text", texts)["values"] == clean
    found = back("choice", texts)
    assert [found["names"][k] if k >= 0 else "" for k in found["values"]] == clean


def test_arrays_stand_beside_columns():
    found = unpack_page(pack_page({"n": 3}, [column("count", [1])], {"cells": np.array([1, 2, 3])}))
    assert found["n"] == 3
    assert found["arrays"]["cells"]["values"].tolist() == [1, 2, 3]


def test_what_does_not_fit_is_left_out_in_order():
    columns = [column("score", [0.5] * 10, key) for key in "abc"]
    kept, left = within(columns, 40)
    assert ([each.key for each in kept], [each.key for each in left]) == (["a", "b"], ["c"])
