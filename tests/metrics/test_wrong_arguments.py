"""Wrong arguments to what is public: each is refused in a line that names it, none ends in an error of Python."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import segmeter
from segmeter.errors import InputError, SegmeterError
from segmeter.metrics.cases.stored import write_cases
from segmeter.metrics.measures.protocol import CaseMaps
from segmeter.metrics.pixels.error_types import error_types
from segmeter.metrics.statistics.paired_tests import holm, sign_flip, wilcoxon
from tests.metrics.build import class_spec, random_rows

TARGET = np.zeros((6, 7), np.uint8)
TARGET[2:4, 2:5] = 1
LABELS = np.roll(TARGET, 1, axis=1)
MASK, OTHER = TARGET > 0, LABELS > 0
LOGITS = torch.zeros(1, 2, 6, 7)
FIELDS = {"task": "binary", "names": ("ground", "cell"), "colours": ((0, 0, 0), (9, 9, 9)), "ignore_index": 255}
SPEC = segmeter.ClassSpec(**FIELDS)


def submit(tensor, **options):
    return segmeter.HostCopier(device="cpu").submit(tensor, case_id="a", **options).result()


COLUMNS = np.arange(12).reshape(6, 2)
DRAWN = {"resamples": 20, "seed": 0, "interval": "bca", "level": 0.9, "clusters": list("aabbcc")}
PAIRS = [("a", TARGET, LABELS), ("b", TARGET, TARGET)]
EVALUATED = segmeter.evaluate(PAIRS, classes=SPEC)
RUNS = {"one": EVALUATED.rows, "two": EVALUATED.rows}


def difference(sums):
    return sums[:, 0] - sums[:, 1]


SURFACES = {"spacing": (1, 1), "tolerances": (1,), "surface": "border_pixels", "penalty": "inf"}
SETTINGS = {"num_classes": 2, "task": "binary", "bins": 5, "ignore_index": 255}
LABELLED = {"target": TARGET, "labels": LABELS, "num_classes": 2, "ignore_index": 255}
PROBABLE = {"target": TARGET, "probs": np.full((6, 7), 0.4), **SETTINGS}
RESAMPLED = {"columns": COLUMNS, "statistic": difference, "test": False, **DRAWN}
TWO = {"first": [0.1, 0.2], "second": [0.2, 0.1]}
SCORED = {"pairs": PAIRS, "classes": SPEC, "task": "binary", "ignore_index": 255, "count_invalid": False}
SCORED |= {"instances": False, "measures": ["boundary"], "convention": "monai"}
SCORED |= {"metrics": segmeter.MetricsConfig(bootstrap=20)}
COMPARED = {"runs": RUNS, "spec": SPEC, "config": segmeter.MetricsConfig(bootstrap=1000), "require": "mean_iou >= base"}
FOCAL = {"logits": LOGITS[:, :1], "target": torch.zeros(1, 6, 7), "task": "binary", "gamma": 2.0}
FOCAL |= {"alpha": 0.25, "ignore_index": None, "label_smoothing": 0.0, "reduction": "mean"}
FOCAL |= {"normalizer": "valid", "backend": "auto"}
DECODED = {"logits_or_labels": LOGITS[:, :1], "task": "binary", "num_classes": 2, "ignore_index": 255, "threshold": 0.5}
MATCHED = {"target": TARGET, "instances": LABELS, "threshold": 0.5, "spacing": (1, 1), "void": MASK}
MAPS = {"case_id": "a", "target": TARGET, "labels": LABELS, "spacing": (1.0, 1.0), "spec": SPEC}
JUDGED = {"other": EVALUATED, "names": ("one", "two"), "require": ["mean_iou >= base"]}
# name: what is called, and arguments that it takes
PUBLIC = {
    "confusion_matrix": (segmeter.confusion_matrix, LABELLED),
    "overlap_scores": (segmeter.overlap_scores, {"counts": np.eye(2, dtype=int), "task": "multiclass", "classes": [0]}),
    "surface_metrics": (segmeter.surface_metrics, {"target": MASK, "mask": OTHER, **SURFACES}),
    "surface_metrics_by_class": (segmeter.surface_metrics_by_class, {**LABELLED, "classes": [1], **SURFACES}),
    "boundary_iou": (segmeter.boundary_iou, {**LABELLED, "width": 1}),
    "error_types": (error_types, {**LABELLED, "width": 1}),
    "match_instances": (segmeter.match_instances, MATCHED),
    "centreline_dice": (segmeter.centreline_dice, {"target": MASK, "mask": OTHER}),
    "calibration": (segmeter.calibration, PROBABLE),
    "Calibration": (segmeter.Calibration, SETTINGS),
    "Calibration.add": (segmeter.Calibration(**SETTINGS).add, {"other": segmeter.Calibration(**SETTINGS)}),
    "bootstrap": (segmeter.bootstrap, RESAMPLED),
    "mean_interval": (segmeter.mean_interval, {"values": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], **DRAWN}),
    "wilcoxon": (wilcoxon, TWO),
    "sign_flip": (sign_flip, {**TWO, "resamples": 20, "seed": 0}),
    "holm": (holm, {"p_values": [0.1, 0.2]}),
    "evaluate": (segmeter.evaluate, SCORED),
    "Evaluation.compare": (EVALUATED.compare, JUDGED),
    "compare": (segmeter.compare, COMPARED),
    "CaseMaps": (CaseMaps, MAPS),
    "load": (segmeter.load, {"checkpoint": "nowhere", "device": "cpu"}),
    "focal_loss": (segmeter.focal_loss, FOCAL),
    "read_cases": (segmeter.read_cases, {"path": Path("nowhere")}),
    "read_spec": (segmeter.read_spec, {"path": "nowhere"}),
    "ClassSpec": (segmeter.ClassSpec, FIELDS),
    "to_torch": (segmeter.to_torch, {"array": TARGET, "device": "cpu"}),
    "to_numpy": (segmeter.to_numpy, {"tensor": LOGITS}),
    "HostCopier": (segmeter.HostCopier, {"device": "cpu"}),
    "HostCopier.submit": (submit, {"tensor": LOGITS, "dtype": None}),
    "labels_to_numpy": (segmeter.labels_to_numpy, DECODED),
    "probs_to_numpy": (segmeter.probs_to_numpy, {"logits": LOGITS, "task": "multiclass", "dtype": "float32"}),
}


WHERE = {"Calibration": "calibration", "Calibration.add": "calibration", "CaseMaps": "case a"}  # the others: their name
WIDE, MASKED = TARGET.astype(np.int64), np.ma.masked_array(TARGET, MASK)
MANY, NAN = np.full((2, 2), 2**62), float("nan")
NO_VALUES = ([], [[0.5]], "abc", ["a"], [None, 1.0], [1j], 5, [[1], [1, 2]], np.ma.masked_array([1.0]))
PROBS = np.full((2, 6, 7), 0.5, np.float32)
CLASSES, VOLUME = {"task": "multiclass"}, {"target": TARGET[None], "labels": LABELS[None]}
SHAPE, INTEGER = "to have the target's shape (6, 7), got (3, 7)", "to have dtype integer, got "
WHOLE, SPACING = "to be whole numbers >= 0, got ", "to have 2 finite values > 0, one per axis, got "


def call(name, **changes):
    function, arguments = PUBLIC[name]
    return function(**arguments | changes)


@pytest.mark.parametrize(
    ("name", "changes", "message"),  # about the first one that is changed
    [
        ("confusion_matrix", {"num_classes": 2.5}, "to be a whole number, got 2.5"),
        ("confusion_matrix", {"num_classes": 0}, "between 1 and 65534, got 0"),
        ("confusion_matrix", {"ignore_index": NAN}, "to be a whole number, got nan"),
        ("confusion_matrix", {"ignore_index": 1}, "to lie outside the classes (0 to 1), got 1"),
        ("confusion_matrix", {"target": MASKED}, "to be a plain NumPy array, got MaskedArray"),
        ("confusion_matrix", {"labels": LABELS * np.float32(1)}, f"{INTEGER}float32 (6, 7)"),
        ("confusion_matrix", {"labels": LABELS[:3]}, SHAPE),
        ("confusion_matrix", {"labels": LABELS * 7}, "to hold only classes 0 to 1, got 6 pixels of 7."),
        ("confusion_matrix", {"labels": -WIDE}, "got 6 pixels of -1."),
        ("confusion_matrix", {"labels": WIDE * 2**32}, "got 6 pixels of 4294967296."),
        ("confusion_matrix", {"target": WIDE * 65535}, "got 6 pixels of 65535."),
        ("confusion_matrix", {"target": TARGET * 7, "ignore_index": None}, "7. Pass its void value as ignore_index."),
        ("confusion_matrix", {"labels": WIDE + np.arange(42).reshape(6, 7)}, "1 pixel of 9 and 30 more values"),
        ("overlap_scores", {"counts": np.zeros((2, 3), int)}, "to be (..., K, K), got (2, 3)"),
        ("overlap_scores", {"counts": np.eye(3), "task": "multilabel"}, "to be (..., K, 2, 2), got (3, 3)"),
        ("overlap_scores", {"counts": np.full((2, 2), -1)}, f"{WHOLE}-1"),
        ("overlap_scores", {"counts": np.full((2, 2), NAN)}, f"{WHOLE}nan"),
        ("overlap_scores", {"counts": [[2, 0.5], [0, 1]]}, f"{WHOLE}0.5"),
        ("overlap_scores", {"counts": np.ones((2, 2), bool)}, f"{WHOLE}bool (2, 2)"),
        ("overlap_scores", {"counts": np.ma.ones((2, 2))}, f"{WHOLE}MaskedArray (2, 2)"),
        ("overlap_scores", {"counts": MANY}, "to sum to 2**53 pixels or fewer"),
        ("overlap_scores", {"counts": 2 * MANY.astype(np.uint64)}, "to sum to 2**53 pixels or fewer"),
        ("overlap_scores", {"task": "multi"}, "to be one of binary, multiclass, multilabel, got 'multi'"),
        ("overlap_scores", {"classes": [2]}, "to be distinct class indices, 0 to 1, got [2]"),
        ("overlap_scores", {"classes": [1, 1]}, "to be distinct class indices, 0 to 1, got [1, 1]"),
        ("overlap_scores", {"classes": []}, "to be distinct class indices, 0 to 1, got []"),
        ("surface_metrics", {"target": TARGET}, "to have dtype bool, got uint8 (6, 7)"),
        ("surface_metrics", {"mask": MASK[:3]}, SHAPE),
        ("surface_metrics", {"target": MASK[0], "mask": MASK[0]}, "to have 2 or 3 axes, got (7,)"),
        ("surface_metrics", {"spacing": 1}, f"{SPACING}1"),
        ("surface_metrics", {"spacing": (1, 1, 1)}, f"{SPACING}(1, 1, 1)"),
        ("surface_metrics", {"spacing": (1, 0)}, f"{SPACING}(1, 0)"),
        ("surface_metrics", {"spacing": (1, NAN)}, f"{SPACING}(1, nan)"),
        ("surface_metrics", {"tolerances": (1, -2)}, ">= 0, got (1, -2)"),
        ("surface_metrics", {"tolerances": (NAN,)}, ">= 0, got (nan,)"),
        ("surface_metrics", {"penalty": "zero"}, "to be one of inf, diagonal, nan or a number >= 0, got 'zero'"),
        ("surface_metrics", {"penalty": -1.0}, "to be one of inf, diagonal, nan or a number >= 0, got -1.0"),
        ("surface_metrics_by_class", {"labels": MASK}, f"{INTEGER}bool (6, 7)"),
        ("surface_metrics_by_class", {"labels": -WIDE}, "to hold only classes 0 to 1, got 6 pixels of -1."),
        ("surface_metrics_by_class", {"target": -WIDE, "ignore_index": None}, "of -1. Pass its void value as"),
        ("surface_metrics_by_class", {"num_classes": 65534}, "between 1 and 65533, got 65534"),
        ("surface_metrics_by_class", {"ignore_index": 1}, "to lie outside the classes (0 to 1), got 1"),
        ("boundary_iou", {"target": TARGET[0], "labels": LABELS[0]}, "to have 2 or 3 axes, got (7,)"),
        ("boundary_iou", {"width": 0}, ">= 1 and <= 1073741824, got 0"),
        ("error_types", VOLUME, "to have 2 axes, got (1, 6, 7)"),
        ("error_types", {"width": 0}, ">= 1 and <= 16384, got 0"),
        ("match_instances", {"target": MASK}, f"{INTEGER}bool (6, 7)"),
        ("match_instances", {"instances": LABELS[:3]}, SHAPE),
        ("match_instances", {"target": TARGET[0], "instances": TARGET[0]}, "to have 2 or 3 axes, got (7,)"),
        ("match_instances", {"instances": -WIDE}, "to hold ids between 0 and 2**63 - 1, got -1 to 0"),
        ("match_instances", {"target": TARGET * np.uint64(2**63)}, "to hold ids between 0 and 2**63 - 1"),
        ("match_instances", {"threshold": 1.0}, "to be at least 0 and below 1, got 1.0"),
        ("match_instances", {"threshold": NAN}, "to be at least 0 and below 1, got nan"),
        ("match_instances", {"spacing": (1,)}, f"{SPACING}(1,)"),
        ("match_instances", {"void": TARGET}, "to have dtype bool, got uint8 (6, 7)"),
        ("calibration", {"probs": np.ma.zeros((6, 7))}, "to be a plain NumPy array of floats, got MaskedArray"),
        ("calibration", {"probs": WIDE}, "to be a plain NumPy array of floats, got ndarray int64. Labels carry no"),
        ("calibration", {"probs": PROBS[:1], **CLASSES}, "to be (2, 6, 7) for a multiclass target"),
        ("calibration", {"probs": PROBS, "task": "multilabel"}, "to be (6, 7) for a multilabel target"),
        ("calibration", {"probs": PROBS[0] * 3}, "to lie between 0 and 1, got 1.5 to 1.5"),
        ("calibration", {"probs": PROBS[0] * NAN}, "to lie between 0 and 1, got nan"),
        ("calibration", {"probs": PROBS * 0.9, **CLASSES}, "to sum to 1 in every pixel, got a sum that is off by 0.1"),
        ("calibration", {"target": TARGET + 2}, "to hold only classes 0 to 1"),
        ("calibration", {"target": TARGET * 1.0}, f"{INTEGER}float64"),
        ("calibration", {"bins": 0}, "between 1 and 10000, got 0"),
        ("calibration", {"task": "panoptic"}, "to be one of binary, multiclass, multilabel, got 'panoptic'"),
        ("calibration", {"num_classes": 3}, "2 for binary, >= 2 for multiclass, >= 1 for multilabel, got 3"),
        ("bootstrap", {"columns": [[1, 2], [3]]}, "to be finite numbers (N >= 1, ...), got "),
        ("bootstrap", {"columns": np.empty((0, 2))}, "to be finite numbers (N >= 1, ...), got float64 (0, 2)"),
        ("bootstrap", {"columns": [[NAN]]}, "to be finite numbers"),
        ("bootstrap", {"columns": np.ones(6)}, "to be finite numbers"),
        ("bootstrap", {"columns": [["a"]]}, "to be finite numbers"),
        ("bootstrap", {"columns": np.full((9, 2), 2**62)}, "to sum to 2**53 or less, being integers, got more"),
        ("bootstrap", {"resamples": 0}, "between 1 and 100000000, got 0"),
        ("bootstrap", {"level": 1.0}, "between 0 and 1, got 1.0"),
        ("bootstrap", {"interval": "bac"}, "to be one of expanded, bca, percentile, got 'bac'. Did you mean 'bca'?"),
        ("bootstrap", {"clusters": "aabbcc"}, "to be 6 labels, a text or an integer per case, got 'aabbcc'"),
        ("bootstrap", {"clusters": ["a"]}, "to be 6 labels, a text or an integer per case, got ['a']"),
        ("bootstrap", {"statistic": None}, "to be a function of sums, got None"),
        ("bootstrap", {"statistic": np.sum}, "to give numbers (1, ...) for sums (1, ...), got int64 ()"),
        *(("mean_interval", {"values": given}, "to be one number per case") for given in NO_VALUES),
        ("wilcoxon", {"second": "ab"}, "to be a flat sequence of numbers, got 'ab'"),
        ("wilcoxon", {"second": np.ones(3)}, "to have the shape (2,), got (3,)"),
        ("sign_flip", {"first": np.ones((2, 2))}, "to be a flat sequence of numbers"),
        ("sign_flip", {"second": [np.inf, 1]}, "to be finite where the other value is, got 1 infinite"),
        ("sign_flip", {"resamples": 0}, "between 1 and 100000000, got 0"),
        ("holm", {"p_values": [1.5]}, "between 0 and 1, got [1.5]"),
        ("holm", {"p_values": [NAN]}, "between 0 and 1, got [nan]"),
        ("evaluate", {"classes": 3}, "to be a list of names, got 3"),
        ("evaluate", {"measures": "surface"}, "to be a list such as [\"surface\"], got 'surface'"),
        ("evaluate", {"metrics": {}}, "to be a MetricsConfig, got {}"),
        ("evaluate", {"instances": "yes"}, "to be a bool, got 'yes'"),
        ("compare", {"runs": [1, 2]}, "to map names to the rows of runs, got [1, 2]"),
        ("compare", {"spec": None}, "to be a ClassSpec, got None"),
        ("CaseMaps", {"labels": LABELS[:3]}, SHAPE),
        ("CaseMaps", {"labels": LABELS * 1.0}, f"{INTEGER}float64"),
        ("CaseMaps", {"instances": LABELS[:3]}, SHAPE),
        ("CaseMaps", {"instances": MASK}, f"{INTEGER}bool (6, 7)"),
        ("CaseMaps", {"target_instances": -WIDE}, "to hold ids between 0 and 2**63 - 1"),
        ("CaseMaps", {"spacing": (1.0,)}, f"{SPACING}(1.0,)"),
        ("CaseMaps", {"spacing": (1.0, 1.0), **VOLUME}, "to have 3 finite values"),
        ("load", {"checkpoint": 3}, "to be a path, got 3"),
        ("read_cases", {"path": "nowhere"}, "to be a file, got nowhere"),
        ("ClassSpec", {"colours": ((0, 0), (1, 1))}, "to be a list of 3, each an integer >= 0 and <= 255, got [0, 0]"),
        ("to_torch", {"device": "gpu"}, 'to be a device such as "cpu" or "cuda:0", got \'gpu\''),
        ("labels_to_numpy", {"threshold": "0.5"}, "to be a number, got '0.5'"),
        ("probs_to_numpy", {"dtype": 1}, "to be one of float32, float16, uint8, got 1"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_given(name, changes, message):
    where, argument = WHERE.get(name, name), next(iter(changes))
    with pytest.raises(InputError, match=rf"^{where}: expected `{argument}[\[\]\d]*` .*{re.escape(message)}"):
        call(name, **changes)


WRONG = [
    *(None, "x", "", b"x", True, -1, 1.5, 1e300, 2**70, float("nan"), float("inf"), 1j),
    *([1], [0.5], [1, "a"], [[1], [1, 2]], ("a",), (), (1, 1, 1), (None, None), {}, object(), len),
    *(np.zeros((2, 2)), np.zeros((6, 7)), np.zeros((6, 7), object), np.zeros((6, 7), complex), np.array(["a"])),
    *(np.ma.zeros((6, 7), int), np.float32(0.5), np.datetime64("2020-01-01"), torch.zeros(2, 2)),
]


# what a refusal says instead, of a value that does not fit another argument, or that is a name
SAID_INSTEAD = {
    ("wilcoxon", "first"): "`second`",
    ("sign_flip", "first"): "`second`",
    ("mean_interval", "values"): "`clusters`",
    ("bootstrap", "columns"): "`clusters`",
    ("load", "checkpoint"): "can't be opened",
    ("evaluate", "measures"): "measure: expected a registered name",
}


@pytest.mark.parametrize(
    ("name", "argument"), [(name, argument) for name, (_, arguments) in PUBLIC.items() for argument in arguments]
)
def test_nothing_ends_in_an_error_of_python_and_every_refusal_names_its_argument(name, argument):
    raised, said = [], (f"`{argument}", SAID_INSTEAD.get((name, argument), f"`{argument}"))
    for given in WRONG:
        try:
            call(name, **{argument: given})
        except SegmeterError as error:
            raised += [] if any(one in str(error) for one in said) else [(given, error)]
        except Exception as error:
            raised.append((given, error))
    assert raised == []


@pytest.mark.parametrize("whole", [2.0, np.uint8(2), np.int64(2), np.float32(2)])
def test_whole_floats_and_numpy_integers_are_counts(whole):
    np.testing.assert_array_equal(call("confusion_matrix", num_classes=whole), call("confusion_matrix"))
    assert call("boundary_iou", num_classes=whole).iou[1] == call("boundary_iou").iou[1]
    assert call("surface_metrics_by_class", num_classes=whole)[0].hd == call("surface_metrics_by_class")[0].hd
    assert call("calibration", num_classes=whole).brier == call("calibration").brier
    assert (call("labels_to_numpy", num_classes=whole) == call("labels_to_numpy")).all()


def test_a_numpy_number_of_classes_does_not_wrap():
    target = np.arange(256, dtype=np.uint16).reshape(16, 16)
    found = segmeter.confusion_matrix(target, target, num_classes=np.uint16(256))
    assert found.trace() == 256
    assert segmeter.confusion_matrix(target % 255, target % 255, num_classes=np.uint8(255)).trace() == 256


def test_a_string_is_a_path_and_a_list_of_names_a_tuple(tmp_path):
    spec = class_spec(3)
    write_cases(tmp_path, random_rows(3), spec)
    assert len(segmeter.read_cases(str(tmp_path))) == 3
    assert segmeter.read_spec(str(tmp_path / "cases.parquet")) == spec
    listed = segmeter.ClassSpec(**FIELDS | {"names": ["ground", "cell"], "colours": [[0, 0, 0], [9, 9, 9]]})
    assert listed == SPEC


def test_lists_are_numbers_and_one_requirement_needs_no_list():
    of_lists = call("bootstrap", columns=COLUMNS.tolist(), resamples=20.0, seed=np.uint8(0))
    np.testing.assert_array_equal(of_lists.replicates, call("bootstrap").replicates)
    assert call("wilcoxon") == call("wilcoxon", first=np.array([0.1, 0.2]), second=np.array([0.2, 0.1]))
    assert call("compare")["gate"] == call("compare", require=["mean_iou >= base"])["gate"]


def test_what_are_no_rows_is_refused():
    with pytest.raises(InputError, match=r"`rows` to be a sequence of CaseRow, got 'runs/a'. segmeter.read_cases"):
        call("compare", runs={"a": "runs/a", "b": "runs/b"})
    with pytest.raises(InputError, match="`row` to be a CaseRow, got 1"):
        call("compare", runs={"a": [1], "b": [2]})
    listed = segmeter.CaseRow(case_id="a", height=1, width=1, counts=[[1, 0], [0, 1]])
    with pytest.raises(InputError, match=r"row 'a': expected `counts` to be a ndarray, got \[\[1, 0\], \[0, 1\]\]"):
        call("compare", runs={"a": [listed], "b": [listed]})
