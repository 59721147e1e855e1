"""`segmeter plan`: how many cases a score or a comparison needs, from a pilot or from published results."""

from segmeter.cli.config.decision_schema import PlanConfig
from segmeter.cli.decisions._recorded import Decision, record
from segmeter.cli.runs.run_folder import Job
from segmeter.evaluation.decisions.plan import plan_runs, points_table
from segmeter.metrics.summary.plan import Aims, plan_published
from segmeter.report.decisions import show_plan


def run(config: PlanConfig, job: Job) -> None:
    """Plan, print the answer, and write plan.json, plan.parquet, the chart and the page.

    Raises
    ------
    InputError
        The runs are not comparable, or have no such score. No folder is made.
    """
    aims = Aims(width=config.width, detect=config.detect, power=config.power)
    if config.sd is None:
        result = plan_runs(config.folders, config.metrics, aims, scores=config.scores)
    else:
        mean, cases = config.mean, config.cases
        result = plan_published(mean=mean, sd=config.sd, cases=cases, config=config.metrics, aims=aims)
    decision = Decision(result=result, rows=points_table(result), shown=show_plan(result))
    record(config, job, "plan", lambda _: decision, facts={"runs": result["runs"]})
