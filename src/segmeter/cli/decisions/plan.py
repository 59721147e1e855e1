"""`segmeter plan`: how many cases a score or a comparison needs, from a pilot or from published figures."""

from pathlib import Path
from typing import Any

from segmeter.cli.config.decision_schema import PlanConfig
from segmeter.cli.runs.run_folder import Job, note_done, open_run
from segmeter.evaluation.decisions.plan import plan_runs, write_points
from segmeter.files import write_json
from segmeter.metrics.summary.plan import Aims, plan_published
from segmeter.report.decisions import print_shown, show_plan, write_shown
from segmeter.report.html import write_report


def run(config: PlanConfig, job: Job) -> None:
    """Plan, print the answer, and write plan.json, plan.parquet, the chart and the page.

    Raises
    ------
    InputError
        The runs are not comparable, or have no such score. No folder is made.
    """
    result = _plan(config)
    with open_run(config, job, facts={"runs": result["runs"]}) as folder:
        write_json(folder / "plan.json", result)
        write_points(folder / "plan.parquet", result)
        shown = show_plan(result)
        write_shown(folder, "plan", shown)
        note_done(folder, {})
        page = write_report(folder)
    print_shown(shown, {"figures": folder / "plan.json", "points": folder / "plan.parquet", "report": Path(page)})


def _plan(config: PlanConfig) -> dict[str, Any]:
    aims = Aims(width=config.width, detect=config.detect, power=config.power)
    if config.sd is not None:
        return plan_published(mean=config.mean, sd=config.sd, cases=config.cases, config=config.metrics, aims=aims)
    return plan_runs(config.folders, config.metrics, aims, scores=config.scores)
