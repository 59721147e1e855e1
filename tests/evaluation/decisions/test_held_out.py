"""Which evaluations may judge labels."""

import json
from pathlib import Path

import pytest

from segmeter.errors import ConfigError, DataError
from segmeter.evaluation.decisions.held_out import find_probs, open_held_out
from tests.evaluation.decisions.test_suspects import NAMES, data, listed, make_data, make_run

__all__ = ["listed"]


def test_a_model_never_judges_its_own_training_cases(listed: Path) -> None:
    run = make_run(listed / "run", make_data(listed / "data"))
    with pytest.raises(ConfigError, match=r"their model never saw.*data.split=train"):
        open_held_out(run, data(listed / "data", lists=".", split="train"))
    with pytest.raises(ConfigError, match=r"data.split=all"):
        open_held_out(run, data(listed / "data", split="all"))
    (listed / "data" / "train.txt").write_text("t1\nb\n")
    with pytest.raises(ConfigError, match=r"no case of the training split.*b"):
        open_held_out(run, data(listed / "data", lists="."))


def test_all_cases_of_other_data_than_in_training_are_taken(listed: Path) -> None:
    seen = make_data(listed / "data") | make_data(listed / "data", ("t1", "t2"), seed=1)
    run, trained = make_run(listed / "run", seen), listed / "trained"
    (trained / "checkpoints" / "step").mkdir(parents=True)
    (trained / "run.json").write_text(json.dumps({"command": "train", "data_root": str(listed / "elsewhere")}))
    checkpoint = str(trained / "checkpoints" / "step")
    (run / "run.json").write_text(json.dumps({"command": "eval", "checkpoint": checkpoint}))
    assert len(open_held_out(run, data(listed / "data", split="all")).dataset) == 6
    (trained / "run.json").write_text(json.dumps({"command": "train", "data_root": str(listed / "data")}))
    with pytest.raises(ConfigError, match=r"data\.split=all"):
        open_held_out(run, data(listed / "data", split="all"), unseen=True)


def test_probabilities_of_every_case_must_be_there(listed: Path) -> None:
    make_run(listed / "run", make_data(listed / "data"))
    with pytest.raises(DataError, match=r"predictions/probs.*which has none.*export.probs=true"):
        find_probs("suspects", listed / "nowhere", ["a"])
    (listed / "run" / "predictions" / "probs" / "b.uint8.npy").unlink()
    with pytest.raises(DataError, match=r"without those of .*b"):
        find_probs("suspects", listed / "run", NAMES)


def test_a_model_of_others_by_a_bare_name_is_no_checkpoint_to_look_beside(listed: Path) -> None:
    run = make_run(listed / "run", make_data(listed / "data"))
    (run / "run.json").write_text(json.dumps({"command": "eval", "checkpoint": "model.onnx"}))
    with pytest.raises(ConfigError, match=r"data\.split=all.*unseen=true"):
        open_held_out(run, data(listed / "data", split="all"))
    seen = make_run(listed / "again", make_data(listed / "data") | make_data(listed / "data", ("t1", "t2"), seed=1))
    (seen / "run.json").write_text(json.dumps({"command": "eval", "checkpoint": "model.onnx"}))
    assert len(open_held_out(seen, data(listed / "data", split="all"), unseen=True).dataset) == 6
