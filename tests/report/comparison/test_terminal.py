"""Tables of a comparison on the terminal: which rows there are, and that names print as they are written."""

import pytest

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.compare import compare_runs
from segmeter.report.comparison.terminal import MOST_SINGLE, print_comparison
from tests.metrics.build import class_spec, random_rows
from tests.metrics.summary.test_compare import spoil

ROWS = random_rows(12)
REST = {
    "convention": "segmeter",
    "rank_by": "mean_iou",
    "order": ["base"],
    "other_orders": {},
    "bootstrap": {"interval": "expanded", "resamples": 1000, "cluster": None, "warning": None},
}


def compared(*shares, names=("base", "new", "third"), spec=None, rows=ROWS, require=(), **options):
    runs = {name: spoil(rows, share) if share else rows for name, share in zip(names, shares, strict=False)}
    config = MetricsConfig(bootstrap=1000, **options)
    return compare_runs(runs, spec or class_spec(), config, require=require) | REST


@pytest.fixture
def printed(capsys):
    """Heading -> rows of cells of each table; and the lines below."""

    def show(result):
        print_comparison(result)
        tables, heading = {}, ""
        for line in capsys.readouterr().out.splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if "|" in line and "p (Holm): " not in line:
                tables[heading].append(cells)
            elif set(line) <= set("+- "):
                continue
            else:
                heading = line.strip()
                tables[heading] = []
        lines = [heading for heading, rows in tables.items() if not rows]
        return {heading: rows for heading, rows in tables.items() if rows}, lines

    return show


def test_a_pair_has_the_ranking_and_a_row_per_metric(printed):
    result = compared(0, 0.4)
    tables, lines = printed(result)
    ranking, differences = tables.values()
    assert list(tables)[1] == "new (new) minus base (base)"
    assert [row[:2] for row in ranking[1:]] == [["base", "1"], ["new", "2"]]
    assert ranking[1][-1] == f"{100 * result['metrics']['mean_iou']['ranking']['rank_shares']['base'][0]:.1f} %"
    assert [row[0] for row in differences[1:4]] == ["mean IoU", "mean Dice", "pixel accuracy"]
    pair = result["metrics"]["mean_iou"]["pairs"][0]
    assert differences[1][1] == f"{pair['dataset_difference']:+.4f} worse"
    assert differences[1][-1] == "12 of 12"
    assert len(differences) == 1 + len(result["metrics"])
    assert "ranked by mean IoU: base" in lines


def test_three_runs_have_two_names_a_row(printed):
    tables, _ = printed(compared(0, 0.2, 0.5))
    rows = tables["new minus base"]
    named = [row[:2] for row in rows[1:7]]
    assert named == [["mean IoU", "base"], ["", "new"], ["", "base"], ["", "third"], ["", "new"], ["", "third"]]


def test_of_many_classes_those_that_differ_are_shown_and_the_others_counted(printed):
    result = compared(0, 0)
    single = {f"iou/c{i}": result["metrics"]["iou/car"] for i in range(MOST_SINGLE + 1)}
    tables, lines = printed(result | {"metrics": {"mean_iou": result["metrics"]["mean_iou"], **single}})
    assert len(tables["new (new) minus base (base)"]) == 1 + 1
    assert (
        f"{MOST_SINGLE + 1} metrics of single classes do not differ beyond chance, and are in compare.json only"
        in lines
    )


def test_slices_and_requirements_have_tables_of_their_own(printed):
    result = compared(0, 0.6, slice_by=(r"(\d)$",), require=("mean_iou >= base - 0.5", "mean_iou >= base"))
    tables, _ = printed(result)
    slices = tables["mean IoU by slice: new (new) minus base (base)"]
    entries = result["slices"][0]["by"][r"(\d)$"]
    assert [row[:3] for row in slices[1:]] == [[r"(\d)$", label, str(entry["n"])] for label, entry in entries.items()]
    assert sum(entry["n"] for entry in entries.values()) == 12
    required = tables["required"]
    assert [row[0] for row in required[1:]] == ["mean_iou >= base - 0.5", "mean_iou >= base"]
    assert [row[-1] for row in required[1:]] == ["met", "REGRESSION"]


def test_names_are_printed_as_they_are_and_never_as_markup(printed):
    names = ("[red]base[/red]", "new\x1b[2J")
    spec = class_spec().replace(names=("sky", "[bold]x", "car"))
    tables, _ = printed(compared(0, 0.4, names=names, spec=spec))
    heading = list(tables)[1]
    assert "(new) minus [red]base[/red] (base)" in heading
    assert "\x1b" not in str(tables)
    assert any(row[0] == "IoU of [bold]x" for row in tables[heading])
