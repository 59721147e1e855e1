"""The verdict of a gate is the worst of its requirements, each of which is decided on its own."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.summary.compare import lay_out
from segmeter.metrics.summary.gates import WORST_FIRST, decide
from tests.metrics.build import case_row, class_spec, random_rows

GATES = Path(__file__).parents[3] / "docs" / "gates.md"
QUICK = MetricsConfig(bootstrap=1000, slice_by=(r"(\d)$",))
SCORES = ("mean_iou", "mean_dice", "pixel_accuracy", "iou/*", "per_case(mean_iou)")
OFFSETS = (-0.1, -0.02, -0.005, 0.005, 0.02)


def judge(base, new, require):
    """The gate alone, without the rest of a comparison."""
    given = lay_out({"base": base, "new": new}, class_spec(), QUICK, require=require)
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
    (block,) = re.findall(r"```yaml\n(.*?)```", GATES.read_text(), re.DOTALL)
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
