"""A folder of predictions without references -> the values of its page."""

from pathlib import Path
from typing import Any

from segmeter.classes import ClassSpec
from segmeter.report.config import ReportConfig
from segmeter.report.data.columns import Column
from segmeter.report.page.evaluation import explorer_values
from segmeter.report.pictures.chosen import choose_pictures
from segmeter.report.pictures.layers import FOLDER, NOTES, read_notes


def prediction_values(folder: Path, config: ReportConfig) -> dict[str, Any]:
    """Gather what the template shows: the cases that have a picture, without any score."""
    notes = [read_notes(path.parent) for path in sorted((folder / FOLDER).glob(f"*/{NOTES}"))]
    if not notes:
        return {"sections": [("run", "Run")]}
    ids = sorted(each["case"] for each in notes)
    shown = choose_pictures(folder, dict.fromkeys(ids), config)
    columns = [Column(key="id", label="case", values=ids, kind="text", group="case", shown=True)]
    facts = {"kind": "prediction", "sort": "id", "size": "id"}
    explorer = explorer_values(columns, _spec(notes), shown, config, facts=facts)
    return {"explorer": explorer, "sections": [("cases", "Cases"), ("run", "Run")]}


def _spec(notes: list[dict[str, Any]]) -> ClassSpec:
    """The classes that occur in pictures; others have their number for a name."""
    found = {int(k): entry for each in notes for k, entry in each["classes"].items()}
    size = max([1, *found]) + 1
    return ClassSpec(
        task=notes[0]["task"],
        names=tuple(found[k]["name"] if k in found else f"class {k}" for k in range(size)),
        colours=tuple(tuple(found[k]["colour"]) if k in found else (0, 0, 0) for k in range(size)),
    )
