"""`segmeter compare`: compares finished evaluations by paired statistics, and checks requirements."""

import sys

from segmeter.cli.config.schema import CompareConfig
from segmeter.cli.runs.run_folder import Job, note_done, open_run
from segmeter.errors import EXIT_REGRESSION, EXIT_UNDECIDED, GateError
from segmeter.evaluation.finished.compare import compare
from segmeter.files import write_bytes, write_json
from segmeter.report.comparison import gate_lines, markdown_summary, print_comparison
from segmeter.report.html import write_report

_EXITS = {"regression": EXIT_REGRESSION, "unknown": EXIT_UNDECIDED}


def run(config: CompareConfig, job: Job) -> None:
    """Compare, print the tables, and write compare.json, compare.html and compare.md.

    Raises
    ------
    InputError
        The runs are not comparable. Each difference has its line, and no folder is made.
    GateError
        A requirement is violated or undecided. The files are written all the same.
    """
    result = compare(config.runs, config.metrics, rank_by=config.rank_by, require=config.requirements)
    with open_run(config, job, facts={"runs": result["folders"]}) as folder:
        write_json(folder / "compare.json", result)
        write_bytes(folder / "compare.md", markdown_summary(result).encode("utf-8", "replace"))
        note_done(folder, {})
        page = write_report(folder)
    print_comparison(result)
    sys.stdout.write(f"result    {folder / 'compare.json'}\nsummary   {folder / 'compare.md'}\n")
    sys.stdout.write(f"report    {page}\n")
    outcome = result["gate"]["outcome"] if "gate" in result else "pass"
    if outcome != "pass":
        raise GateError(gate_lines(result), exit_code=_EXITS[outcome])
