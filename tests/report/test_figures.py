"""The rows of tables, from small summaries written by hand."""

from segmeter.report import figures

BINARY = {
    "task": "binary",
    "convention": "segmeter",
    "n_cases": 3,
    "classes": ["ground", "cell"],
    "ignore_index": 255,
    "dataset": {"mean_iou": 0.7, "pixel_accuracy": 0.9, "n_classes_undefined": 1},
    "dataset_ci95": {"mean_iou": [0.6, 0.8]},
    "per_case": {"mean_iou": {"mean": 0.65, "ci95": [0.5, 0.8], "std": 0.1, "n_used": 2, "n_undefined": 1}},
    "per_class": {
        "ground": {"iou": 0.9, "dice": 0.95, "precision": 0.9, "recall": 1.0, "support": 75},
        "cell": {"iou": 0.005, "dice": 0.01, "precision": None, "recall": 0.4, "support": 25},
    },
}
OF_CASES = {"iou": {"mean": 0.007, "ci95": [0.001, 0.02], "std": 0.01, "n_used": 2, "n_undefined": 1}}
BINARY["per_class"]["cell"] |= {"ci95": {"iou": [0, 0.1]}, "per_case": OF_CASES}


def test_the_object_s_iou_leads_a_binary_table():
    rows = figures.aggregates(BINARY)
    assert [row["name"] for row in rows] == ["IoU of cell", "Dice of cell", "mean IoU", "pixel accuracy"]
    assert (rows[0]["dataset"], rows[0]["dataset_ci95"]) == (0.005, [0, 0.1])
    assert (rows[0]["mean"], rows[0]["mean_ci95"], rows[0]["n_used"]) == (0.007, [0.001, 0.02], 2)
    assert (rows[2]["dataset"], rows[2]["mean"], rows[2]["n_undefined"]) == (0.7, 0.65, 1)
    assert rows[3]["mean"] is None
    several = figures.aggregates(BINARY | {"task": "multiclass"})
    assert [row["name"] for row in several] == ["mean IoU", "pixel accuracy"]


def test_shares_are_of_all_pixels_and_for_multilabel_of_the_plane():
    assert [row["share"] for row in figures.classes(BINARY)] == [0.75, 0.25]
    planes = {"confusion_matrices": [[[20, 5], [70, 5]], [[50, 25], [20, 5]]]}
    assert [row["share"] for row in figures.classes(BINARY | planes)] == [0.75, 0.25]
    empty = BINARY | {"per_class": {"ground": {"support": 0}, "cell": {"support": None}}}
    assert [row["share"] for row in figures.classes(empty)] == [None, None]


def test_notes_name_what_the_scores_leave_out_and_what_was_not_learned():
    resampling = {"resamples": 100, "interval": "bca", "cluster": "(.)", "warning": "Only 3 units"}
    measured = {"units": {"hd95": "mm"}, "measures": {"hd95": {}, "ap": {}}}
    lines = figures.notes(BINARY | {"mean_classes": ["cell"], "bootstrap": resampling} | measured)
    assert lines == [
        "convention segmeter",
        "3 cases",
        "label 255 ignored",
        "1 of 2 classes undefined, left out of the means",
        "means without ground",
        "distances and tolerances in mm",
        "AP is tp / (tp + fp + fn) over objects, not COCO's",
        "IoU below 0.01, though the references hold them: cell",
        "95 % intervals: bca bootstrap, 100 draws of clusters",
        "Only 3 units",
    ]


def test_measures_have_one_row_per_region_with_their_unit():
    regions = {"cell": {"mean": 2.5, "n_used": 3}, "glia": {"mean": 3.5}, "mean": {"dataset": 1.0}}
    one = {"cell": {"mean": 0.5, "n_used": 3}, "mean": {"mean": 0.5}}
    summary = {"measures": {"hd95": regions, "pq": one}, "units": {"hd95": "mm"}}
    rows = [row for row in figures.measures(summary) if row["region"] != "glia"]
    assert [(row["label"], row["region"], row["mean"], row["dataset"]) for row in rows] == [
        ("HD95 (mm)", "cell", 2.5, ""),
        ("HD95 (mm)", "mean", "", 1.0),
        ("PQ", "cell", 0.5, ""),  # the mean over one class repeats it
    ]


def test_calibration_says_how_far_average_precision_may_be_off():
    found = dict.fromkeys(("ece", "mce", "classwise_ece", "brier", "nll", "mean_average_precision"))
    found |= {"ece": 0.25, "per_class": {"a": {"average_precision_error": 0.002}, "b": {}}}
    rows, classes = figures.calibration({"calibration": found})
    assert [(row["name"], row["value"]) for row in rows] == [
        ("ECE of the winning class", 0.25),
        ("average precision, off by up to", 0.002),
    ]
    assert [row["name"] for row in classes] == ["a", "b"]
    assert figures.calibration({}) == ([], [])
