"""Events as columns of a row, and the objects as a table."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from segmeter.classes import ClassSpec
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.config.measures import EventsConfig, PartitionConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import boxes, maps_of

CELLS = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 255, 255)), ignore_index=9)
CONFIG = MetricsConfig(bootstrap=0, measures=(EventsConfig(distances=True),))


TARGET = boxes((10, 12), (0, 0, 3, 3), (5, 1, 9, 5), (5, 8, 7, 11))
LABELS = boxes((10, 12), (0, 0, 3, 4), (5, 1, 6, 5), (7, 1, 9, 5), (0, 8, 1, 10))


def row_of(target, labels, config=CONFIG, *, case_id="a", spec=CELLS, spacing=(1.0, 1.0)):
    return make_row(maps_of(target, labels, spec, case_id=case_id, spacing=spacing), build_measures(config, spec))


def test_numbers_of_the_data_set_are_sums_over_its_cases():
    rows = [row_of(TARGET, LABELS), row_of(TARGET, TARGET, case_id="b")]
    found = summarise(rows, CELLS, CONFIG)["measures"]
    numbers = {name.removeprefix("objects_"): entry["cell"]["dataset"] for name, entry in found.items()}
    # of the first case one matched, one in two parts, one missed, and one found where nothing is
    assert numbers == {
        "matched": 4, "split": 1, "merged": 0, "missed": 1, "part": 2, "merging": 0, "spurious": 1
    }  # fmt: skip
    assert all("mean" not in entry for entry in found.values())


def test_a_row_per_object(tmp_path):
    row = row_of(TARGET, LABELS, spacing=(2.0, 0.5))
    assert write_cases(tmp_path, [row], CELLS) == ("cases.parquet", "cases.csv", "objects.parquet")
    table = pq.read_table(tmp_path / "objects.parquet").to_pylist()
    assert [(o["side"], o["event"], o["pixels"]) for o in table] == [
        ("target", "matched", 9),
        ("target", "split", 16),
        ("target", "missed", 6),
        ("prediction", "matched", 12),
        ("prediction", "spurious", 2),
        ("prediction", "part", 4),
        ("prediction", "part", 8),
    ]
    first, other = table[0], table[3]
    assert (first["case_id"], first["region"], first["unit"]) == ("a", "cell", "pixels")
    assert (first["box"], first["centroid"], first["touches_border"]) == ([0, 0, 3, 3], [1.0, 1.0], True)
    assert (table[2]["box"], table[2]["touches_border"]) == ([5, 8, 7, 11], False)
    assert (first["id"], first["partner"]) == (other["partner"], other["id"])
    assert first["size"] == 9 * 2.0 * 0.5
    assert (first["iou"], first["dice"]) == (9 / 12, 18 / 21) == (other["iou"], other["dice"])
    assert first["centroid_distance"] == pytest.approx(0.5 * 0.5)  # half a column of 0.5
    assert first["hd95"] == pytest.approx(0.5)  # the last column of the prediction is one column away
    assert all(o["iou"] is None and o["partner"] is None and o["hd95"] is None for o in table[1:3] + table[4:])


def test_without_a_table_there_is_no_file(tmp_path):
    config = MetricsConfig(bootstrap=0, measures=(EventsConfig(table=False),))
    assert write_cases(tmp_path, [row_of(TARGET, LABELS, config)], CELLS) == ("cases.parquet", "cases.csv")


def test_volumes_and_several_classes(tmp_path):
    spec = ClassSpec(task="multiclass", names=("none", "a", "b"), colours=((0, 0, 0),) * 3)
    target = np.zeros((4, 5, 6), np.uint8)
    target[:2], target[3] = 1, 2
    config = MetricsConfig(bootstrap=0, background=False, measures=(EventsConfig(),))
    write_cases(tmp_path, [row_of(target, target, config, spec=spec, spacing=(3.0, 1.0, 1.0))], spec)
    table = pq.read_table(tmp_path / "objects.parquet").to_pylist()
    expected = [(k, side, size, 1.0) for k, size in (("a", 180.0), ("b", 90.0)) for side in ("target", "prediction")]
    assert [(o["region"], o["side"], o["size"], o["iou"]) for o in table] == expected
    assert (table[2]["box"], table[2]["hd95"]) == ([3, 0, 0, 4, 5, 6], None)


def test_the_adapted_rand_error_of_the_data_set_counts_missed_and_spurious_objects():
    config = MetricsConfig(bootstrap=0, measures=(PartitionConfig(),))
    rows = [row_of(TARGET, TARGET, config), row_of(TARGET, 0 * TARGET, config, case_id="b")]
    rows.append(row_of(0 * TARGET, boxes((10, 12), (0, 0, 2, 2)), config, case_id="c"))
    pairs = 9 * 8 + 16 * 15 + 6 * 5  # within the objects
    entry = summarise(rows, CELLS, config)["measures"]["are"]["cell"]
    assert entry["dataset"] == pytest.approx(1 - 2 * pairs / (2 * pairs + pairs + 4 * 3))
