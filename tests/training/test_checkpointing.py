"""Which checkpoints stay and which one is taken up again, after anything that can happen while one is written."""

import copy
import errno
import os
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import segmeter.files
from segmeter.errors import CheckpointError, RunError
from segmeter.training import checkpointing
from segmeter.training.checkpointing import RunCheckpoints, step_name
from segmeter.training.trainer import train
from tests.training.tiny import assert_same, tiny_job, tiny_segmenter


@pytest.fixture
def checkpoints(tmp_path):
    return opened(tmp_path)


def opened(folder, **values):
    return RunCheckpoints(folder / "checkpoints", **{"keep": 1, "highest": True, **values})


def save(checkpoints, step, score=None, *, waits=True, **values):
    segmenter = tiny_segmenter()
    checkpoints.rank(score, step)
    checkpoints.save(
        step,
        segmenter_state={name: value + step for name, value in segmenter.state_dict().items()},
        card=segmenter.card,
        state={"step": step, "weight": torch.full((2,), float(step))},
        progress={"step": step},
        **values,
    )
    if waits:
        checkpoints.wait()


def names(checkpoints):
    return sorted(path.name for path in checkpoints.folder.iterdir())


def linked(checkpoints, link):
    return str((checkpoints.folder / link).readlink())


@pytest.mark.parametrize(
    ("keep", "scores", "stay"),
    [(1, [0.1, 0.9, 0.2, 0.3, 0.4, 0.5], [2, 5, 6]), (3, [0.7, 0.9, 0.2, 0.8, 0.1, 0.1, 0.1], [1, 2, 4, 6, 7])],
)
def test_the_two_newest_stay_and_as_many_of_the_best_as_asked_for(tmp_path, keep, scores, stay):
    kept = opened(tmp_path, keep=keep)
    for step, score in enumerate(scores, 1):
        save(kept, step, score)
    assert [score for score, _ in kept.table] == sorted(scores)[: -keep - 1 : -1]
    assert names(kept) == ["best", "last", *map(step_name, stay)]


@pytest.mark.parametrize(
    ("highest", "scores", "is_best", "best"),
    [
        (False, [0.5, 0.7, 0.4], [True, False, True], 2),
        (True, [float("nan"), 0.0, float("nan"), 0.0, None], [False, True, False, False, False], 1),
    ],
    ids=["lower is better", "NaN never enters and a tie stays with the older"],
)
def test_a_score_is_the_best_or_not(tmp_path, highest, scores, is_best, best):
    table = opened(tmp_path, highest=highest)
    assert table.best is None
    assert [table.rank(score, step) for step, score in enumerate(scores)] == is_best
    assert table.best == (scores[best], table.folder / step_name(best))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors", "state.pt"])
@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_a_damaged_newest_one_is_said_and_the_one_before_is_taken_up(tmp_path, checkpoints, caplog, damage, name):
    for step, score in enumerate([0.5, 0.25, 0.75], 1):
        save(checkpoints, step, score)
    damage(checkpoints.folder / "step-00000003" / name)
    again = opened(tmp_path)
    assert again.newest()[1]["step"] == 2
    assert "step-00000003 is damaged, going back to the one before" in caplog.text
    assert (linked(again, "last"), linked(again, "best")) == ("step-00000002", "step-00000001")
    save(again, 3, 0.8)  # its name is free again
    assert linked(again, "best") == "step-00000003"
    assert "damaged-step-00000003" in names(again)


def test_nothing_to_resume_from_is_an_error(tmp_path, checkpoints):
    with pytest.raises(CheckpointError, match=r"checkpoints: there is no checkpoint to resume from"):
        checkpoints.newest()
    save(checkpoints, 1)
    truncate(checkpoints.folder / "step-00000001" / "state.pt")
    with pytest.raises(CheckpointError, match="none of its 1 checkpoints is whole") as caught:
        opened(tmp_path).newest()
    assert "truncated" in caught.value.problems[1]
    assert "step-00000001" in names(checkpoints)  # nothing is lost by trying


def test_an_unvalidated_one_is_resumed_from_and_gives_way_to_the_same_step_validated(tmp_path, checkpoints):
    """It is not among the two newest then, so the folder is that of a run that was never stopped."""
    save(checkpoints, 2, 0.1)
    save(checkpoints, 4, 0.2)
    save(checkpoints, 6, unvalidated=True)
    assert "step-00000006-unvalidated" in names(checkpoints)
    resumed = opened(tmp_path)
    assert resumed.newest()[1]["step"] == 6
    save(resumed, 6, 0.3)
    assert names(resumed) == ["best", "last", "step-00000004", "step-00000006"]
    assert opened(tmp_path).newest()[0].name == "step-00000006"


def test_what_a_killed_process_left_is_cleared(tmp_path, checkpoints):
    save(checkpoints, 1)
    stale = checkpoints.folder / ".tmp-abc"
    stale.mkdir()
    (stale / "model.safetensors").write_bytes(b"half")
    (checkpoints.folder / ".tmp-1-last").symlink_to("step-00000001")
    opened(tmp_path)
    assert names(checkpoints) == ["last", "step-00000001"]


@pytest.mark.parametrize(
    ("where", "error"),
    [(torch, OSError(errno.ENOSPC, "No space left on device")), (os, PermissionError(13, "Permission denied"))],
    ids=["full", "closed"],
)
def test_a_disk_that_is_full_or_closed_is_an_error_that_names_what_stays(checkpoints, monkeypatch, where, error):
    def failing_save(step, score, message):
        with monkeypatch.context() as patch:
            patch.setattr(where, "save" if where is torch else "replace", Mock(side_effect=error))
            with pytest.raises(RunError, match=rf"step {step} could not be saved; {message}.*{error.strerror}"):
                save(checkpoints, step, score)

    failing_save(1, None, "there is no earlier one")
    save(checkpoints, 2, 0.5)
    failing_save(3, 0.75, r"step-00000002 stays and can be resumed.*step-00000003")
    assert names(checkpoints) == ["best", "last", "step-00000002"]
    assert linked(checkpoints, "best") == "step-00000002"


def test_links_that_can_not_be_updated_are_not_a_checkpoint_that_was_not_saved(checkpoints, monkeypatch):
    save(checkpoints, 1, 0.5)
    monkeypatch.setattr(checkpointing, "point", Mock(side_effect=OSError(28, "No space left", "run/last")))
    message = r"step 2 was saved, but the links .* not be updated; step-00000002 stays .* run/last: No space left\."
    with pytest.raises(RunError, match=message):
        save(checkpoints, 2, 0.6)


class Crash(BaseException):
    """The process ends here: nothing catches it on the way but `finally`."""


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_crash_at_any_point_of_saving_leaves_a_whole_checkpoint(tmp_path, monkeypatch, function):
    """The n-th call fails, for every n until a save goes through; what is found then is old or new, never neither."""
    real, seen, crashed, n = getattr(os, function), set(), True, 0
    while crashed:
        n += 1
        checkpoints, calls = opened(tmp_path / str(n)), count(1)
        save(checkpoints, 1, 0.5)

        def crash(*args, calls=calls, n=n, **places):
            if next(calls) == n:
                raise Crash
            return real(*args, **places)

        with monkeypatch.context() as patch, suppress(Crash):
            patch.setattr(segmeter.files.os, function, crash)
            patch.setattr(segmeter.files.shutil, "rmtree", Mock())  # a dead process cleans nothing
            save(checkpoints, 2, 0.75)
            crashed = False
        again = opened(tmp_path / str(n))
        state = again.newest()[1]
        seen.add(state["step"])
        assert state["weight"].tolist() == [float(state["step"])] * 2
        assert linked(again, "last") == linked(again, "best") == step_name(state["step"])
    assert n > 3
    assert seen == {1, 2}


def test_a_checkpoint_holds_the_moment_of_saving_though_training_goes_on(tmp_path, monkeypatch):
    free, write = threading.Event(), checkpointing.write_checkpoint
    monkeypatch.setattr(checkpointing, "write_checkpoint", lambda *a, **k: free.wait(10) and write(*a, **k))
    checkpoints = opened(tmp_path)
    segmenter, weight = tiny_segmenter(), torch.arange(12.0).view(3, 4)
    views = {"view": weight[1:], "list": [weight.t(), [1, "x", None]], "empty": weight[:0]}
    state = {"a": weight, "again": weight, **views}
    before = copy.deepcopy(state)
    checkpoints.rank(0.5, 1)
    checkpoints.save(1, segmenter_state=segmenter.state_dict(), card=segmenter.card, state=state, progress={})
    assert not (checkpoints.folder / "last").exists()
    weight.zero_()
    checkpoints.rank(0.75, 2)  # a checkpoint that is not there yet must not be what "best" points to
    free.set()
    checkpoints.wait()
    assert_same(checkpoints.newest()[1], before | {"table": [[0.5, "step-00000001"]]})
    assert (checkpoints.folder / "best").resolve().name == "step-00000001"
    checkpoints.close()


def test_a_failure_in_the_background_ends_the_run_at_the_next_save_or_is_logged(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(checkpointing, "write_checkpoint", Mock(side_effect=RunError("no disk")))
    checkpoints = opened(tmp_path)
    save(checkpoints, 1, waits=False)
    with pytest.raises(RunError, match="no disk"):
        save(checkpoints, 2, waits=False)
    checkpoints.wait(only_if_done=True)
    save(checkpoints, 2, waits=False)
    checkpoints.close()
    assert "no disk" in caplog.text
    with pytest.raises(RunError, match="no disk"):
        train(tiny_job(tmp_path / "run", steps=1))  # its only checkpoint, which nothing later waits for
