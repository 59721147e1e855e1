"""The golden spine from the command line: the figures that another tool publishes for these files."""

import json
from pathlib import Path
from typing import Any

import pytest

from segmeter.cli.main import main

VALUES = (0, 26, *range(41, 50), 60, 61, 62, 100)


def scored(folder: Path, root: Path, *arguments: str) -> dict[str, Any]:
    for role, name in (("predictions", "pred"), ("references", "ref")):
        (root / role).mkdir()
        (root / role / "spine.nii.gz").symlink_to(folder / f"{name}.nii.gz")
    folders = [f"{role}={root / role}" for role in ("predictions", "references")]
    main(["score", *folders, f"run.root={root}", "metrics.bootstrap=0", "report.html=false", *arguments])
    (run,) = (root / "score").iterdir()
    measures: dict[str, Any] = json.loads((run / "metrics.json").read_text())["measures"]
    return measures


def test_objects_by_number(shared_data: Path, tmp_path: Path) -> None:
    measures = scored(
        shared_data / "golden" / "spine" / "matched",
        tmp_path,
        "data.task=binary",
        "data.classes=[none,bone]",
        "data.instances=true",
        "metrics.measures=[{name: instances, objects: maps, distances: true}]",
        "metrics.spacing=[1,1,1]",
    )
    found = {name: entry["bone"]["dataset"] for name, entry in measures.items()}
    assert [found[name] for name in ("tp", "fp", "fn")] == [19, 3, 3]
    assert found["rq"] == pytest.approx(0.8636363636363636, rel=1e-12)
    assert found["sq"] == pytest.approx(0.8328184295330798, rel=1e-12)
    assert found["object_dice"] == pytest.approx(0.900292616009954, rel=1e-12)
    assert found["object_masd"] == pytest.approx(0.25033188787922506, rel=1e-12)
    assert found["pq"] == pytest.approx(0.7192522800512963, rel=1e-12)


def test_connected_parts_of_each_class(shared_data: Path, tmp_path: Path) -> None:
    """The published figures number the parts of all classes together, and match them whatever their class."""
    mapping = ",".join(f"{value}:{k}" for k, value in enumerate(VALUES))
    names = ",".join(f"class_{k}" for k in range(1, len(VALUES)))
    measures = scored(
        shared_data / "golden" / "spine" / "semantic",
        tmp_path,
        f"data.num_classes={len(VALUES)}",
        f"data.label_map={{{mapping}}}",
        "metrics.measures=[{name: instances, objects: by_class, classes: [class_1]}]",
        f"metrics.groups={{bones:[{names}]}}",
    )
    found = {name: entry["bones"]["dataset"] for name, entry in measures.items()}
    assert [found[name] for name in ("tp", "fp", "fn")] == [73, 16, 14]
    assert found["rq"] == pytest.approx(0.8295454545454546, rel=1e-12)
    assert found["sq"] == pytest.approx(0.7940127477906024, rel=1e-12)
    assert found["pq"] == pytest.approx(0.6586696657808406, rel=1e-12)
    assert found["object_dice"] == pytest.approx(0.8802182546605446, rel=1e-12)
