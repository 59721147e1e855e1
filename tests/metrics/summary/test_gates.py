"""A gate passes, fails, or says that it can't tell, by intervals; the worst of its requirements decides."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

from segmeter.errors import ConfigError
from segmeter.metrics.config.measures import EventsConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.objects.matching import INSTANCE_EVENTS, TARGET_EVENTS
from segmeter.metrics.statistics.bootstrap import bootstrap
from segmeter.metrics.statistics.columns import mean_columns, mean_of_columns
from segmeter.metrics.summary.compare import compare_runs, lay_out
from segmeter.metrics.summary.gates import WORST_FIRST, decide
from segmeter.metrics.summary.summarise import summarise
from tests.metrics.build import case_row, class_spec, random_rows
from tests.metrics.summary.test_compare import spoil

DOCS = Path(__file__).parents[3] / "docs"
QUICK = MetricsConfig(bootstrap=1000)
ROWS = random_rows(40)


def gate(new, require, *, config=QUICK, base=ROWS):
    require = [require] if isinstance(require, str) else require
    return compare_runs({"base": base, "new": new}, class_spec(), config, require=require)["gate"]


def only(*args, **options):
    (entry,) = gate(*args, **options)["requirements"]
    return entry


def run(values):
    """Forty cases with these distances of their car."""
    return [case_row(r.case_id, r.counts, scores={"hd95/car": v}) for r, v in zip(ROWS, values, strict=True)]


def test_the_same_predictions_pass_at_a_margin_of_nothing():
    found = gate(ROWS, ["mean_iou >= base; iou/* >= base", "per_case(mean_dice) >= base"])
    assert found["outcome"] == "pass"
    assert [entry["margin"] for entry in found["requirements"]] == [0.0] * 5
    assert [entry["metric"] for entry in found["requirements"]][1:4] == ["iou/sky", "iou/road", "iou/car"]


def test_a_clear_loss_is_a_regression_and_its_numbers_are_those_of_the_runs():
    worse = spoil(ROWS, 0.3)
    entry = only(worse, "mean_iou >= base - 0.005")
    one, other = (summarise(rows, class_spec(), QUICK)["dataset"]["mean_iou"] for rows in (ROWS, worse))
    assert entry["outcome"] == "regression"
    assert (entry["base"], entry["new"]) == (pytest.approx(one, rel=1e-12), pytest.approx(other, rel=1e-12))
    assert entry["margin"] == pytest.approx(other - one + 0.005, rel=1e-9)
    assert entry["n_units_needed"] is None


def test_the_interval_is_that_of_the_paired_difference():
    worse = spoil(ROWS, 0.05)
    (pair,) = compare_runs({"base": ROWS, "new": worse}, class_spec(), QUICK)["metrics"]["iou/car"]["pairs"]
    entry = only(worse, "iou/car >= base - 0.01")
    low, high = pair["dataset_ci95"]
    assert entry["margin_ci95"] == [pytest.approx(low + 0.01, rel=1e-9), pytest.approx(high + 0.01, rel=1e-9)]


def test_what_is_within_chance_cannot_be_told_and_the_cases_needed_are_named():
    # the margin's interval shrinks with the square root of the cases, until its end reaches the bound
    worse = spoil(ROWS, 0.05)
    lost = -only(worse, "mean_iou >= base")["margin"]
    entry = only(worse, f"mean_iou >= base - {lost * 1.02:.6f}")
    low, _ = entry["margin_ci95"]
    assert (entry["outcome"], entry["reason"]) == ("unknown", "the interval contains the bound")
    reach = (entry["margin"] - low) / entry["margin"]
    assert entry["n_units_needed"] == int(np.ceil(40 * reach**2)) > 40


def test_a_ratio_and_a_fixed_bound():
    worse = spoil(ROWS, 0.3)
    entry = only(worse, "mean_iou >= base * 0.5")
    assert entry["outcome"] == "pass"
    assert entry["margin"] == pytest.approx(entry["new"] - 0.5 * entry["base"], rel=1e-9)
    assert only(worse, "mean_iou >= 0.9")["outcome"] == "regression"


def test_a_score_that_became_undefined_is_no_pass_and_the_cases_used_are_counted():
    known = [2.0 + i % 3 for i in range(40)]
    some = [np.nan] * 4 + known[4:]
    base, fewer = run(known), run([v - 1 for v in some])
    entry = only(fewer, "hd95/car <= base", base=base)
    assert (entry["outcome"], entry["n_used"], entry["n_undefined"], entry["n_units"]) == ("unknown", 36, 4, 36)
    assert entry["reason"] == "the score became undefined in 4 cases of the new run"
    assert only(run([v + 3 for v in some]), "hd95/car <= base", base=base)["outcome"] == "regression"
    back = only(run([v - 1 for v in known]), "hd95/car <= base", base=run(some))  # the new run has more
    assert (back["outcome"], back["n_used"], back["n_undefined"]) == ("pass", 36, 4)
    assert "n_used" not in only(ROWS, "mean_iou >= base")


def test_too_few_cases_cannot_tell():
    entry = only(spoil(ROWS[:4], 0.5), "mean_iou >= base", base=ROWS[:4])
    assert (entry["outcome"], entry["margin_ci95"]) == ("unknown", [None, None])
    assert "fewer than 5" in entry["reason"]


def test_a_class_that_two_cases_hold_is_not_judged_though_both_are_perfect():
    rows = [case_row(f"c{i}", [[90, 0], [0, 9 if i < 2 else 0]]) for i in range(40)]
    found = compare_runs({"base": rows, "new": rows}, class_spec(2), QUICK, require=["iou/* >= base"])["gate"]
    sky, road = found["requirements"]
    assert (sky["outcome"], sky["margin_ci95"]) == ("pass", [0, 0])
    assert (road["outcome"], road["margin_ci95"]) == ("unknown", [None, None])


def test_slices_and_every_slice(tmp_path):
    table = tmp_path / "cases.csv"
    table.write_text("case_id,ward\n" + "".join(f"{r.case_id},{'AB'[i % 2]}\n" for i, r in enumerate(ROWS)))
    config = QUICK.replace(slices=str(table), slice_by=("ward",))
    new = [spoil([row], 0.4)[0] if i % 2 else row for i, row in enumerate(ROWS)]  # only ward B is worse
    found = gate(new, "mean_iou[ward=*] >= base - 0.001", config=config)
    outcomes = {entry["slice"]["value"]: entry["outcome"] for entry in found["requirements"]}
    assert outcomes == {"A": "pass", "B": "regression"}
    assert found["outcome"] == "regression"
    part = [row for i, row in enumerate(new) if i % 2]
    assert found["requirements"][1]["new"] == pytest.approx(
        summarise(part, class_spec(), QUICK)["dataset"]["mean_iou"], rel=1e-12
    )
    assert [entry["n_units"] for entry in found["requirements"]] == [20, 20]


@pytest.mark.parametrize(
    ("require", "message"),
    [
        ("mean_uio >= base", "to name a score of all runs, got 'mean_uio'. Did you mean 'mean_iou'?"),
        ("mean_iou <= base", "to be mean_iou >= ..., as higher is better, got 'mean_iou <= base'"),
        ("mean_iou >= 85", "to bound mean_iou by 0 to 1, got 'mean_iou >= 85'"),
        ("mean_iou[ward=A] >= base", "to name a column of metrics.slice_by, got 'ward'. Set metrics.slice_by."),
    ],
)
def test_a_requirement_about_nothing_is_refused(require, message):
    with pytest.raises(ConfigError) as caught:
        gate(ROWS, require)
    assert message in str(caught.value)


def test_a_name_in_capitals_gets_the_one_that_is_meant():
    with pytest.raises(ConfigError, match=r"got 'HD95'\. Did you mean 'hd95'"):
        gate(run([2.0] * 40), "HD95 <= base + 1", base=run([2.0] * 40))


def test_a_score_of_the_data_set_alone_has_no_mean_over_cases():
    config = QUICK.replace(measures=(EventsConfig(),))
    sums = {f"sum:events_{name}/car": 1.0 for name in (*TARGET_EVENTS, *INSTANCE_EVENTS[:4])}
    rows = [case_row(r.case_id, r.counts, scores=sums) for r in ROWS]
    assert only(rows, "objects_missed/car <= base", config=config, base=rows)["outcome"] == "pass"
    with pytest.raises(ConfigError, match="to name a score of all runs that has values per case, got 'objects_missed"):
        gate(rows, "per_case(objects_missed/car) <= base", config=config, base=rows)


def test_neither_fewer_than_1000_resamples_nor_three_runs_decide_anything():
    with pytest.raises(ConfigError, match=r"to be \[BASE,NEW\] where `require` is given, got 3 runs"):
        compare_runs(dict.fromkeys("abc", ROWS), class_spec(), QUICK, require=["mean_iou >= base"])
    few = QUICK.replace(bootstrap=999)
    with pytest.raises(ConfigError, match=r"metrics.bootstrap` to be 1000 or more where `require` is given, got 999"):
        gate(ROWS, "mean_iou >= base", config=few)
    assert "gate" not in compare_runs({"base": ROWS, "new": ROWS}, class_spec(), few)


def test_p_values_agree_with_the_interval():
    # below 0.05 exactly where the interval leaves 0 out, for each kind of interval, but for what one replicate decides
    columns = mean_columns(np.random.default_rng(1).normal(0.25, 1, (30, 40)) ** 3 / 3)
    for interval in ("expanded", "bca", "percentile"):
        found = bootstrap(columns, mean_of_columns, interval=interval, resamples=999, test=True)
        outside = (found.low > 0) | (found.high < 0)
        assert 5 < outside.sum() < 35
        assert (outside == (found.p_of_zero < 0.05)).sum() >= 39


BY_DIGIT = QUICK.replace(slice_by=(r"(\d)$",))
SCORES = ("mean_iou", "mean_dice", "pixel_accuracy", "iou/*", "per_case(mean_iou)")
OFFSETS = (-0.1, -0.02, -0.005, 0.005, 0.02)


def judge(base, new, require):
    """The gate alone, without the rest of a comparison."""
    given = lay_out({"base": base, "new": new}, class_spec(), BY_DIGIT, require=require)
    return decide(*given.boards.values(), given.required, given.labels)


def with_distances(rows, rng):
    """The same cases with a distance each, of which some are infinite and some undefined."""
    share = rng.choice([0.0, 0.03, 0.3])
    values = np.where(rng.random(len(rows)) < share, np.inf, rng.gamma(4, size=len(rows)))
    values[rng.random(len(rows)) < rng.choice([0.0, 0.05])] = np.nan
    return [case_row(r.case_id, r.counts, scores={"hd95/car": v}) for r, v in zip(rows, values, strict=True)]


def noisy(rows, rng, share):
    """The same references, of which other pixels are right."""
    found = []
    for row in rows:
        totals = row.counts.sum(axis=1, keepdims=True)
        kept = np.where(totals > 0, row.counts / np.maximum(totals, 1), 1 / len(totals))
        chances = (1 - share) * kept + share / len(totals)
        counts = [rng.multinomial(n, p) for n, p in zip(totals[:, 0], chances, strict=True)]
        found.append(case_row(row.case_id, counts))
    return found


def pool(rng):
    """A requirement at random, a text as users write it."""
    if rng.random() < 0.25:
        return str(rng.choice(["hd95 <= base", "hd95/car <= base + 1", "hd95 <= 6", "hd95/car <= base * 1.2"]))
    part = str(rng.choice(["", "", r"[(\d)$=*]", r"[(\d)$=3]"]))
    return f"{rng.choice(SCORES)}{part} >= " + str(rng.choice([f"base {x:+}" for x in OFFSETS] + ["0.3", "0.5"]))


def test_one_more_requirement_that_holds_does_not_take_a_regression_back():
    # the bound lies just beyond the interval: an adjusted p-value of three requirements is above 0.05
    base = random_rows(40)
    new = noisy(base, np.random.default_rng(1), 0.1)
    (entry,) = judge(base, new, ["mean_iou >= 0"])["requirements"]
    alone = f"mean_iou >= {entry['margin_ci95'][1] + 1e-4}"
    both = [alone, "mean_iou >= 0.01", "mean_dice >= 0.01"]
    assert judge(base, new, [alone])["outcome"] == "regression"
    found = judge(base, new, both)
    assert [each["outcome"] for each in found["requirements"]] == ["regression", "pass", "pass"]
    assert found["outcome"] == "regression"
    assert found["requirements"][0]["p_holm"] > 0.05, "which is shown, and decides nothing"


@pytest.mark.parametrize("seed", range(12))
def test_one_more_requirement_never_makes_the_verdict_better(seed):
    rng = np.random.default_rng(seed)
    base = random_rows(int(rng.integers(6, 40)), seed=seed)
    new = with_distances(noisy(base, rng, rng.choice([0.0, 0.05, 0.3])), rng)
    base, required, before, seen = with_distances(base, rng), [], None, {}
    for _ in range(5):
        required.append(pool(rng))
        found = judge(base, new, required)
        entries = {each["require"]: {**each, "p_holm": None} for each in found["requirements"]}
        assert {name: entries[name] for name in seen} == seen, "no entry depends on the others"
        ranks = [WORST_FIRST.index(each["outcome"]) for each in found["requirements"]]
        assert WORST_FIRST.index(found["outcome"]) == min(ranks)
        assert before is None or WORST_FIRST.index(found["outcome"]) <= before
        before, seen = WORST_FIRST.index(found["outcome"]), entries


@pytest.mark.parametrize(
    ("code", "settings", "wanted"),
    [(0, {}, 0), (4, {}, 4), (5, {}, 5), (2, {}, 2), (5, {"UNDECIDED": "warn"}, 0), (4, {"UNDECIDED": "warn"}, 4)],
)
def test_the_workflow_of_the_page_fails_on_what_cannot_be_told(tmp_path, code, settings, wanted):
    (block,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "gates.md").read_text(), re.DOTALL)
    (step,) = [one for one in yaml.safe_load(block)["jobs"]["gate"]["steps"] if one.get("name") == "gate"]
    command = tmp_path / "segmeter"
    command.write_text(f"#!/bin/sh\nexit {code}\n")
    command.chmod(0o755)
    (tmp_path / "runs" / "compare" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "compare" / "one" / "compare.md").write_text("## summary\n")
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    environment = given | {name: str(value) for name, value in (step.get("env") or {}).items()} | settings
    done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == wanted
    assert (tmp_path / "summary.md").read_text() == "## summary\n"
