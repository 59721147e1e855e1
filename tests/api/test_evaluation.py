"""`segmeter.evaluate`: the command line's bytes from arrays alone, and one line for whatever is wrong."""

import html
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import segmeter
from segmeter.cli.main import main
from segmeter.errors import InputError, SegmeterError
from segmeter.report.pictures.maps import MATCHED, MISSED
from segmeter.report.summary import summary_tables

CLASSES = ["background", "road", "<b>car</b>"]
SHAPE = (24, 32)


def draw(count=6, seed=0):
    """Smooth enough to have surfaces; the last case has no car."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        target = rng.integers(0, 3 if number < count - 1 else 2, (6, 8)).repeat(4, 0).repeat(4, 1).astype(np.uint8)
        prediction = np.where(rng.random(SHAPE) < 0.1, np.roll(target, 2, 1), target).astype(np.uint8)
        target[:2] = 255
        yield f"case{number}", target, prediction


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The command line's run on the same maps as PNG."""
    root = tmp_path_factory.mktemp("written")
    for side in ("references", "predictions"):
        (root / side).mkdir()
    for case_id, target, prediction in draw():
        Image.fromarray(target).save(root / "references" / f"{case_id}.png")
        Image.fromarray(prediction).save(root / "predictions" / f"{case_id}.png")
    names = ",".join(f'"{name}"' for name in CLASSES)
    options = [f"data.classes=[{names}]", "data.ignore_index=255", "metrics.measures=[surface,error_types]"]
    options += ["metrics.bootstrap=1000", "metrics.background=false", "report.html=false", f"run.root={root / 'runs'}"]
    main(["score", f"predictions={root / 'predictions'}", f"references={root / 'references'}", *options])
    return next((root / "runs" / "score").iterdir())


@pytest.fixture(scope="module")
def evaluation():
    metrics = segmeter.MetricsConfig(bootstrap=1000, background=False)
    measures = ["surface", {"name": "error_types"}]
    return segmeter.evaluate(draw(), classes=CLASSES, ignore_index=255, measures=measures, metrics=metrics)


def test_the_bytes_are_those_of_the_command_line(evaluation, written, tmp_path):
    """Mutation seen to fail: the spacing's summary left out."""
    folder = evaluation.write(tmp_path / "run")
    for name in ("metrics.json", "cases.csv", "cases.parquet"):
        assert (folder / name).read_bytes() == (written / name).read_bytes(), name
    assert "&lt;b&gt;car" in (folder / "report.html").read_text(encoding="utf-8")


def test_the_order_of_cases_changes_nothing(evaluation):
    options = {"ignore_index": 255, "metrics": evaluation.metrics}
    again = segmeter.evaluate(reversed(list(draw())), classes=CLASSES, **options)
    assert again.summary == evaluation.summary
    assert again.cases.equals(evaluation.cases)
    assert (len(again), again.cases["case_id"].to_pylist()) == (6, [f"case{number}" for number in range(6)])


def test_means_of_a_case_run_over_the_same_classes_as_those_of_the_data_set(evaluation):
    for name in ("mean_iou", "mean_dice"):
        cases = evaluation.cases[name].to_numpy()
        assert evaluation.summary["per_case"][name]["mean"] == pytest.approx(np.nanmean(cases), abs=1e-12), name


def test_a_notebook_shows_the_tables_of_the_command_line():
    """Every cell of every table."""
    config = segmeter.MetricsConfig(bootstrap=100, slice_by=("^(.)",), convention="all", groups={"ways": ["road"]})
    cases = [(f"{'ab'[number % 2]}{number}", *maps) for number, (_, *maps) in enumerate(draw(12))]
    measures = ["error_types", {"name": "events", "classes": ["road"]}]
    found = segmeter.evaluate(cases, classes=CLASSES, ignore_index=255, measures=measures, metrics=config)
    page, tables = found._repr_html_(), summary_tables(found.summary)
    assert [table.heads[0] for table in tables] == ["score", "class", "measure", "slices by", "convention"]
    cells = {cell for table in (each.narrow(1) for each in tables) for row in table.rows for cell in row}
    assert "<b>car</b>" not in page
    assert html.unescape(page) == f"<pre>{found.table()}</pre>"
    assert not {cell for cell in cells if cell not in found.table()}


def test_the_worst_cases_are_listed_and_shown():
    cases = [*draw(4)]
    found = segmeter.evaluate(cases, classes=CLASSES, ignore_index=255)
    worst = found.worst(2)
    scores = dict(zip(found.cases["case_id"].to_pylist(), found.cases["mean_iou"].to_pylist(), strict=True))
    assert list(worst.items()) == sorted(scores.items(), key=lambda item: item[1])[:2]
    plain = found.show("case1")
    lit = found.show("case1", np.full((*cases[1][1].shape, 3), 200, np.uint8))
    assert plain.size == lit.size
    assert (np.asarray(plain) != np.asarray(lit)).any()
    with pytest.raises(SegmeterError, match="got 'case11'"):
        found.show("case11")
    with pytest.raises(SegmeterError, match="Give `evaluate` a list of pairs"):
        segmeter.evaluate(draw(4), classes=CLASSES, ignore_index=255).show("case1")


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_a_volume_is_not_shown(task):
    volume = np.ones((3, *((2,) if task == "multilabel" else ()), 4, 5), np.uint8)
    found = segmeter.evaluate([("a", volume, volume)], classes=CLASSES, task=task)
    with pytest.raises(InputError, match=r"`case_id` to have maps of two axes, got 'a', a volume"):
        found.show("a")


def test_a_predicted_value_below_0_is_shown_as_no_class():
    target = np.zeros((4, 6), int)
    labels = target.copy()
    pictures = []
    for value in (-1, 77):
        labels[0] = value
        found = segmeter.evaluate([("a", target, labels)], classes=CLASSES, count_invalid=True)
        pictures.append(np.asarray(found.show("a")))
    np.testing.assert_array_equal(*pictures)


def test_the_distribution_of_a_score_is_a_picture():
    found = segmeter.evaluate([*draw(4)], classes=CLASSES, ignore_index=255)
    drawn = found.plot()
    np.testing.assert_array_equal(drawn.counts, np.histogram(found.cases["mean_iou"], 20, (0, 1))[0])
    (area,) = (each for each in ElementTree.fromstring(drawn._repr_svg_()).iter() if "polygon" in each.tag)
    tops = [float(point.partition(",")[2]) for point in area.get("points").split()][: 2 * len(drawn.counts) : 2]
    heights = [max(tops) - top for top in tops]
    np.testing.assert_allclose(heights, 230 * drawn.counts / drawn.counts.max(), atol=0.11)
    with pytest.raises(SegmeterError, match="Did you mean 'iou/"):
        found.plot("iuo/" + CLASSES[1])


def test_two_evaluations_are_compared(evaluation):
    def worse():
        for case_id, target, prediction in draw():
            yield case_id, target, np.where(np.arange(32) < 8, 0, prediction).astype(np.uint8)

    other = segmeter.evaluate(worse(), classes=CLASSES, ignore_index=255, metrics=evaluation.metrics)
    found = evaluation.compare(other, names=("new", "old"), require=["mean_iou >= base - 1"])
    assert found["gate"]["outcome"] == "pass"
    assert repr(found).startswith("Comparison of new and old on 6 cases: ")
    assert "old (new) minus new (base)" in found.table()
    assert found._repr_html_().startswith("<pre>")
    means = found["metrics"]["mean_iou"]["per_case"]
    assert means["new"] > means["old"]
    with pytest.raises(SegmeterError, match="to have the same classes"):
        evaluation.compare(segmeter.evaluate(draw(), classes=["a", "b", "c"], ignore_index=255))


def test_where_nothing_can_be_written_is_refused(evaluation, tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(SegmeterError, match="to be new or empty"):
        evaluation.write(tmp_path)
    with pytest.raises(SegmeterError, match=r"`folder` to lie in a folder, got .*run, below the file "):
        evaluation.write(tmp_path / "file" / "run")
    for write in (evaluation.write_nnunet, evaluation.write_grand_challenge):
        with pytest.raises(SegmeterError, match="`path` to lie in an existing folder"):
            write(tmp_path / "nowhere" / "metrics.json")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_class_spec_says_task_and_ignored_value(evaluation):
    spec = evaluation.spec
    for given in ({}, {"task": "multiclass", "ignore_index": 255}):
        again = segmeter.evaluate(draw(), classes=spec, metrics=evaluation.metrics, **given)
        assert again.summary == evaluation.summary
    for given in ({"task": "multilabel"}, {"ignore_index": 254}, {"ignore_index": None}):
        with pytest.raises(
            SegmeterError, match="`classes` to have the given `task` and `ignore_index`, got 'multiclass' and 255"
        ):
            segmeter.evaluate(draw(), classes=spec, **given)


def numbered(seed, shift=0):
    """Discs, some of which touch, and their number as value."""
    rows, columns = np.ogrid[:40, :60]
    rng, found = np.random.default_rng(seed), np.zeros((40, 60), np.uint16)
    for number in range(1, 9):
        row, column = rng.integers(5, 35), rng.integers(5, 55)
        found[(rows - row) ** 2 + (columns - column - shift) ** 2 < 36] = number * 7
    return found


def test_numbers_of_objects_are_matched_as_they_are_and_shown_as_matched_or_missed():
    pairs = [(f"{seed}", numbered(seed), numbered(seed, 2)) for seed in range(3)]
    options = {"classes": ["none", "cell"], "task": "binary", "instances": True}
    found = segmeter.evaluate(pairs, **options)
    whole = [segmeter.match_instances(target, labels) for _, target, labels in pairs]
    assert found.cases["extra_pq/cell"].to_pylist() == [one.pq for one in whole]
    assert found.summary["per_class"]["cell"]["support"] == sum(int((target > 0).sum()) for _, target, _ in pairs)
    assert repr(found).startswith("Evaluation of 3 cases: PQ of cell 0.")
    colours = {tuple(colour) for colour in np.asarray(found.show("0")).reshape(-1, 3).tolist()}
    assert {MATCHED, MISSED} <= colours
    nothing = np.zeros((40, 60), np.uint16)
    ignored = np.where(np.arange(60) < 20, np.uint16(255), nothing)
    found = segmeter.evaluate([("0", nothing, nothing), ("1", ignored, nothing)], ignore_index=255, **options)
    counts = [(np.asarray(found.show(case_id)) == MISSED).all(axis=-1).sum() for case_id in "01"]
    assert counts[0] == counts[1], "an ignored area is no missed object"
    with pytest.raises(SegmeterError, match="`instances` to be False but for a binary task"):
        segmeter.evaluate(pairs, classes=["none", "cell"], instances=True)
    with pytest.raises(SegmeterError, match=r"to have 2 or 3 axes, got \(1, 1, 4, 5\)"):
        segmeter.evaluate([("0", *[np.zeros((1, 1, 4, 5), int)] * 2)], **options)
    with pytest.raises(SegmeterError, match=r"0: .*numbers of objects >= 0"):
        segmeter.evaluate([("0", *(one.astype(int) - 1 for one in pairs[0][1:]))], **options)


MAP = np.zeros((4, 5), np.uint8)
PAIR = [("a", MAP, MAP)]
TWO = {"classes": ["x", "y"]}
OBJECTS = TWO | {"task": "binary", "instances": True}
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
    (PAIR, {"classes": ["x", "x"]}, "twice|distinct"),
    (PAIR, TWO | {"task": "panoptic"}, "binary, multiclass, multilabel"),
    (PAIR, TWO | {"task": "multilabel"}, "axes"),
    (PAIR, TWO | {"ignore_index": "x"}, "ignore_index"),
    (PAIR, TWO | {"task": "multilabel", "count_invalid": True}, "count_invalid"),
    ([("a", MAP, MAP + 7)], OBJECTS | {"ignore_index": 7}, "a: .*no object with the ignored value, got 20 pixels of 7"),
    (PAIR, OBJECTS | {"count_invalid": True}, "`count_invalid` to be False for numbers of objects, got True"),
    (PAIR, TWO | {"metrics": segmeter.MetricsConfig(calibration=True)}, "`metrics.calibration` to be False"),
    (PAIR, TWO | {"measures": ["surfaces"]}, "surface"),
    (PAIR, TWO | {"convention": "nnunet2"}, "nnunet"),
    (PAIR, TWO | {"metrics": segmeter.MetricsConfig(spacing=(1.0, 1.0, 1.0)), "measures": ["surface"]}, "2 finite"),
]


@pytest.mark.parametrize(("pairs", "given", "line"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_argument_gets_one_clear_error(pairs, given, line):
    with pytest.raises(SegmeterError, match=line):
        segmeter.evaluate(pairs, **given)


def test_a_refused_evaluation_takes_nothing_along():
    pair = np.array([[0, 0, 1, 1]]), np.array([[0, 1, 1, 1]])
    options = {"classes": ("ground", "cell"), "task": "binary", "measures": ["surface", "partition"]}
    before = segmeter.evaluate([("a", *pair)], **options).summary
    for bad in (("a", pair[0], pair[1] + 7), ("a", pair[0], pair[1] / 2), ("b", pair[0], pair[1][:, 1:])):
        with pytest.raises(SegmeterError):
            segmeter.evaluate([("a", *pair), bad], **options)
    assert segmeter.evaluate([("a", *pair)], **options).summary == before
