"""The pairs that `segmeter.evaluate` takes: maps of object numbers, and one line for whatever is wrong."""

import numpy as np
import pytest

import segmeter
from segmeter.errors import SegmeterError


def numbered(seed, shift=0):
    """Discs, some of which touch, and their number as value."""
    rows, columns = np.ogrid[:40, :60]
    rng, found = np.random.default_rng(seed), np.zeros((40, 60), np.uint16)
    for number in range(1, 9):
        row, column = rng.integers(5, 35), rng.integers(5, 55)
        found[(rows - row) ** 2 + (columns - column - shift) ** 2 < 36] = number * 7
    return found


def test_numbers_of_objects_are_matched_as_they_are():
    pairs = [(f"{seed}", numbered(seed), numbered(seed, 2)) for seed in range(3)]
    options = {"classes": ["none", "cell"], "task": "binary", "instances": True}
    found = segmeter.evaluate(pairs, **options)
    whole = [segmeter.match_instances(target, labels) for _, target, labels in pairs]
    assert found.cases["extra_pq/cell"].to_pylist() == [one.pq for one in whole]
    assert found.summary["per_class"]["cell"]["support"] == sum(int((target > 0).sum()) for _, target, _ in pairs)
    assert "PQ" in found.table()
    with pytest.raises(SegmeterError, match="`instances` to be False but for a binary task"):
        segmeter.evaluate(pairs, classes=["none", "cell"], instances=True)
    with pytest.raises(SegmeterError, match=r"to have 2 or 3 axes, got \(1, 1, 4, 5\)"):
        segmeter.evaluate([("0", *[np.zeros((1, 1, 4, 5), int)] * 2)], **options)
    with pytest.raises(SegmeterError, match=r"0: .*numbers of objects >= 0"):
        segmeter.evaluate([("0", *(one.astype(int) - 1 for one in pairs[0][1:]))], **options)


MAP = np.zeros((4, 5), np.uint8)
PAIR = [("a", MAP, MAP)]
TWO = {"classes": ["x", "y"]}
WRONG = [
    ([], TWO, "at least one case"),
    *(
        ([one], TWO, "each id a text, got .* at place 0")
        for one in (5, "abc", ("a", MAP), (7, MAP, MAP), ("", MAP, MAP))
    ),
    ([*PAIR, *PAIR], TWO, "'a' twice"),
    ([("a", MAP.tolist(), MAP)], TWO, "list as target of case 'a'"),
    ([("a", MAP, None)], TWO, "NoneType as prediction of case 'a'"),
    ([("a", np.ma.masked_array(MAP), MAP)], TWO, "MaskedArray as target"),
    ([("a", MAP.astype(float), MAP)], TWO, "case a: .*to have dtype integer, got float64"),
    ([("a", MAP, MAP.astype(complex))], TWO, "to have dtype integer, got complex128"),
    ([("a", MAP, MAP.astype(object))], TWO, "to have dtype integer"),
    ([("a", MAP, MAP[:3])], TWO, "to have the target's shape"),
    ([("a", MAP[0], MAP[0])], TWO, "to have 2 or 3 axes"),
    ([("a", MAP + 2, MAP)], TWO, "a: "),
    ([("a", MAP, MAP + 2)], TWO, "a: "),
    ([("a", MAP.astype(np.int8) - 1, MAP)], TWO, "a: "),
    (PAIR, {"classes": "xy"}, "to be a list of names"),
    (PAIR, {"classes": []}, "classes"),
    (PAIR, {"classes": ["x", "x"]}, "twice|distinct"),
    (PAIR, {"classes": ["x"], "task": "binary"}, "two|2"),
    (PAIR, TWO | {"task": "panoptic"}, "binary, multiclass, multilabel"),
    (PAIR, TWO | {"task": "multilabel"}, "axes"),
    (PAIR, TWO | {"ignore_index": 1}, "ignore_index"),
    (PAIR, TWO | {"ignore_index": "x"}, "ignore_index"),
    (PAIR, TWO | {"task": "multilabel", "count_invalid": True}, "count_invalid"),
    (PAIR, TWO | {"measures": ["surfaces"]}, "surface"),
    (PAIR, TWO | {"measures": [{"name": "surface", "tolerance": [1]}]}, "tolerances"),
    (PAIR, TWO | {"measures": ["surface", "surface"]}, "once"),
    (PAIR, TWO | {"convention": "nnunet2"}, "nnunet"),
    (PAIR, TWO | {"metrics": segmeter.MetricsConfig(spacing=(1.0, 1.0, 1.0)), "measures": ["surface"]}, "2 finite"),
]


@pytest.mark.parametrize(("pairs", "given", "line"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_argument_gets_one_clear_error(pairs, given, line):
    with pytest.raises(SegmeterError, match=line):
        segmeter.evaluate(pairs, **given)
