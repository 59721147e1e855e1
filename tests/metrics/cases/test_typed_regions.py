"""Margins of classes and groups against counts of the maps' own pixels."""

import numpy as np
import pytest

from segmeter.metrics.cases import table
from segmeter.metrics.cases.typed import class_regions
from segmeter.metrics.pixels.confusion import confusion_matrix
from tests.metrics.build import case_row, class_spec, random_rows, stack_totals

GROUPS = {"ground": ("sky", "road"), "all": ("sky", "road", "car")}


def margins(rows, spec, regions):
    found = stack_totals(rows, spec, regions)
    return {name: getattr(found, name).tolist() for name in ("tp", "target", "predicted", "total")}


def test_classes_come_before_groups_by_their_indices():
    assert class_regions(class_spec(3), {"b": ("car", "sky"), "a": ("road",)}) == {
        "sky": [0], "road": [1], "car": [2], "b": [2, 0], "a": [1],
    }  # fmt: skip


@pytest.mark.parametrize("group", [4, 4096], ids=["groups of 4 rows", "one group"])
def test_regions_are_those_of_maps_in_which_each_group_is_a_class(group, monkeypatch):
    """Mistaking one member for another is right; mutation seen to fail: the diagonal alone."""
    monkeypatch.setattr(table, "BLOCK", group)
    rng, spec = np.random.default_rng(0), class_spec(3)
    maps = [rng.integers(0, 3, (2, 6, 7)) for _ in range(9)]
    maps[3][0][:] = 255
    rows = [case_row(str(i), confusion_matrix(*pair, num_classes=3, ignore_index=255)) for i, pair in enumerate(maps)]
    regions = class_regions(spec, GROUPS)
    found = margins(rows, spec, regions)
    for column, members in enumerate(regions.values()):
        for i, (target, labels) in enumerate(maps):
            valid = target != 255
            one, other = np.isin(target, members) & valid, np.isin(labels, members) & valid
            expected = [(one & other).sum(), one.sum(), other.sum(), valid.sum()]
            assert [found[name][i][column] for name in ("tp", "target", "predicted", "total")] == expected


def test_predictions_outside_the_classes_are_missed_and_of_no_region():
    spec = class_spec(2).replace(count_invalid=True)
    row = case_row("a", [[4, 1, 2], [0, 3, 5]])
    expected = {"tp": [[8]], "target": [[15]], "predicted": [[8]], "total": [[15]]}
    assert margins([row], spec, {"both": [0, 1]}) == expected
    assert margins([row], spec, {"road": [1]}) == {"tp": [[3]], "target": [[8]], "predicted": [[4]], "total": [[15]]}


def test_single_classes_are_the_same_beside_a_group_and_alone():
    rows, spec = random_rows(7), class_spec(3)
    alone = margins(rows, spec, {"car": [2], "sky": [0]})
    beside = margins(rows, spec, {"car": [2], "sky": [0], "both": [0, 2]})
    assert {name: [each[:2] for each in values] for name, values in beside.items()} == alone
    planes = random_rows(4, task="multilabel")
    found = stack_totals(planes, class_spec(3, "multilabel"), {"road": [1]})
    assert found.tp[:, 0].tolist() == [int(row.counts[1, 1, 1]) for row in planes]
    assert found.total[:, 0].tolist() == [int(row.counts[1].sum()) for row in planes]
