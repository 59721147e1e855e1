"""Eval and predict draw their pictures from the label maps that they wrote, and say so where they wrote none."""

import pytest

from tests.cli.sharded import newest, run

EVAL = ("eval", "checkpoint=net", "data.root=.", "data.split=all", "device=cpu", "metrics.bootstrap=0")
PREDICT = ("predict", "checkpoint=net", "input=images", "device=cpu")
pytestmark = pytest.mark.usefixtures("in_here")


@pytest.mark.parametrize("command", [EVAL, PREDICT], ids=lambda command: command[0])
def test_pictures_come_from_the_label_maps(command):
    assert run(*command, "report.html=false", "report.overlays=3", "report.worst=2") == 0
    folder = newest(f"runs/{command[0]}")
    drawn = {path.stem for path in (folder / "overlays").iterdir()}
    assert drawn == {path.name for path in (folder / "pictures").iterdir()}
    assert drawn
    assert command is EVAL or len(drawn) == 3  # without scores none is worst, so that all of them are the sample
    assert (folder / "worst").exists() == (command is EVAL)


@pytest.mark.parametrize("command", [EVAL, PREDICT], ids=lambda command: command[0])
def test_without_label_maps_none_are_drawn_and_that_is_said(command, capfd):
    assert run(*command, "report.html=false", "export.labels=false") == 0
    assert "pictures: none are drawn, as export.labels=false keeps no label maps." in capfd.readouterr().err
    assert not (newest(f"runs/{command[0]}") / "overlays").exists()
    assert run(*command, "report.html=false", "export.labels=false", "report.overlays=0", "report.worst=0") == 0
    assert "pictures" not in capfd.readouterr().err, "none are asked for"


def test_objects_whose_numbers_are_not_kept_are_not_drawn_and_that_is_said(capfd):
    """Connected parts would be drawn as missed objects where the measure matched the split ones."""
    steps = ("postprocess.steps=[watershed]", "metrics.measures=[instances]", "report.html=false", "report.overlays=1")
    said = "pictures: no objects are drawn, as export.instances=false keeps none of their numbers."
    assert run(*EVAL, *steps, "export.instances=false") == 0
    assert said in capfd.readouterr().err
    assert not list((newest("runs/eval") / "pictures").glob("*/*-objects.png"))
    assert run(*EVAL, *steps) == 0
    assert said not in capfd.readouterr().err
    assert list((newest("runs/eval") / "pictures").glob("*/*-objects.png"))
