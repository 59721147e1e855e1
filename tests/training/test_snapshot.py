import threading

import pytest
import torch

from segmeter.errors import RunError
from segmeter.training import checkpointing
from segmeter.training.checkpointing import Checkpoints
from segmeter.training.trainer import train
from tests.training.tiny import tiny_job, tiny_segmenter


def test_a_checkpoint_holds_the_moment_of_saving_though_training_goes_on(tmp_path, monkeypatch):
    free, write = threading.Event(), checkpointing.write_checkpoint
    monkeypatch.setattr(checkpointing, "write_checkpoint", lambda *a, **k: free.wait(10) and write(*a, **k))
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1, highest=True)
    checkpoints.prepare()
    segmenter, weight, whole = tiny_segmenter(), torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4)
    views = {"view": weight[1:], "list": [weight.t(), [1, "x", None]], "empty": weight[:0]}
    state = {"a": weight, "again": weight, **views}
    checkpoints.rank(0.5, 1)
    checkpoints.save(1, segmenter_state=segmenter.state_dict(), card=segmenter.card, state=state, progress={})
    assert not (checkpoints.folder / "last").exists()
    weight.zero_()
    checkpoints.rank(0.75, 2)  # a checkpoint that is not there yet must not be what "best" points to
    free.set()
    checkpoints.wait()
    kept = checkpoints.newest().state
    assert torch.equal(kept["a"], whole)
    assert torch.equal(kept["again"], whole)
    assert torch.equal(kept["view"], whole[1:])
    assert torch.equal(kept["list"][0], whole.t())
    assert kept["list"][1] == [1, "x", None]
    assert kept["empty"].shape == (0, 4)
    assert kept["table"] == [[0.5, "step-00000001"]]
    assert (checkpoints.folder / "best").resolve().name == "step-00000001"
    checkpoints.close()


def test_a_checkpoint_that_fails_ends_the_run_soon_and_the_one_before_stays(tmp_path, monkeypatch):
    write, calls = checkpointing.write_checkpoint, []

    def fails_second(folder, **values):
        calls.append(folder.name)
        if len(calls) == 2:
            raise RunError("no disk")
        write(folder, **values)

    monkeypatch.setattr(checkpointing, "write_checkpoint", fails_second)
    with pytest.raises(RunError, match="the checkpoint of step 4 could not be saved; step-00000002 stays"):
        train(tiny_job(tmp_path, epochs=9))
    assert calls == ["step-00000002", "step-00000004"]


def test_a_failure_in_the_background_surfaces_once_and_is_logged_at_the_end(tmp_path, monkeypatch, caplog):
    def fails(folder, **values):
        raise RunError("no disk")

    monkeypatch.setattr(checkpointing, "write_checkpoint", fails)
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1, highest=True)
    checkpoints.prepare()
    segmenter = tiny_segmenter()
    values = {"card": segmenter.card, "state": {}, "progress": {}}
    checkpoints.save(1, segmenter_state=segmenter.state_dict(), **values)
    with pytest.raises(RunError, match="no disk"):
        checkpoints.wait()
    checkpoints.check()
    checkpoints.save(2, segmenter_state=segmenter.state_dict(), **values)
    checkpoints.close()
    assert "no disk" in caplog.text
