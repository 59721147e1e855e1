"""Interrupted predictions: what is done stays, and the end is that of an uninterrupted run."""

from dataclasses import replace

import pytest

from segmeter.errors import ConfigError
from segmeter.evaluation.evaluate import predict
from segmeter.evaluation.manifest import Manifest
from segmeter.export.config import ExportConfig
from tests.evaluation.test_evaluate_resume import files
from tests.evaluation.test_predict import Untargeted, job

COUNT = 7  # in batches of 2
FIELDS = {"export": ExportConfig(probs=True), "identity": {"checkpoint": "0"}}


def start(folder, **changes):
    cases = Untargeted(count=COUNT)
    predict(job(folder, dataset=cases, **FIELDS, **changes))
    return cases


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    start(folder)
    return files(folder)


def interrupt(folder, after, patch):
    add, left = Manifest.add, [after]

    def add_and_leave(self, entry):
        add(self, entry)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with patch.context() as patched:
        patched.setattr(Manifest, "add", add_and_leave)
        with pytest.raises(KeyboardInterrupt):
            start(folder)


@pytest.mark.parametrize("after", [1, 4, 6, COUNT])
def test_an_interrupted_run_ends_with_the_same_bytes(after, clean, tmp_path, monkeypatch):
    interrupt(tmp_path, after, monkeypatch)
    cases = start(tmp_path, resume=True)
    restored = COUNT - len(cases.read)
    done = after if after == COUNT else after // 2 * 2
    assert restored <= done, "files that still waited to be written are written again"
    assert sorted(cases.read) == list(range(restored, COUNT))
    assert files(tmp_path) == clean


def test_other_settings_and_other_images_are_refused(tmp_path, monkeypatch):
    interrupt(tmp_path, 3, monkeypatch)
    work = replace(job(tmp_path, dataset=Untargeted(count=COUNT), **FIELDS), resume=True)
    with pytest.raises(ConfigError, match="`checkpoint` was '0' and is '1' now"):
        predict(replace(work, identity={"checkpoint": "1"}))
    with pytest.raises(ConfigError, match=r"cases that are gone \(1: case06\)"):
        predict(replace(work, dataset=Untargeted(count=COUNT - 1)))
