"""The keys of the commands that help to decide."""

from pathlib import Path
from typing import Any

import pytest

from segmeter.data.labels_config import LabelsConfig
from segmeter.errors import ConfigError
from segmeter.evaluation.decisions.config import AgreeKeys, PlanKeys
from segmeter.metrics.config.metrics import MetricsConfig

RUN = Path("run")


@pytest.mark.parametrize(
    "given",
    [
        {"runs": RUN, "width": 0.1},
        {"runs": (RUN, RUN), "detect": 0.1},
        {"sd": 0.1, "detect": 0.1},
        {"sd": 0.1, "mean": 0.8, "cases": 20, "width": 0.1},
    ],
    ids=["a run", "two runs", "differences", "published"],
)
def test_one_pilot_with_an_aim_is_accepted(given: dict[str, Any]) -> None:
    keys = PlanKeys(metrics=MetricsConfig(), **given)
    assert len(keys.folders) == len(given.get("runs", ())) if isinstance(given.get("runs", ()), tuple) else 1


@pytest.mark.parametrize("resamples", [0, 999])
def test_too_few_resamples_are_refused(resamples: int) -> None:
    with pytest.raises(ConfigError, match="1000 or more"):
        PlanKeys(runs=RUN, width=0.1, metrics=MetricsConfig(bootstrap=resamples))


def test_each_kind_of_consensus_is_named_once() -> None:
    metrics, data = MetricsConfig(), LabelsConfig(classes=("ground", "cell"))
    assert AgreeKeys(metrics=metrics, data=data).consensus == ("majority",)
    with pytest.raises(ConfigError, match="to name each kind once"):
        AgreeKeys(consensus=("staple", "staple"), metrics=metrics, data=data)
