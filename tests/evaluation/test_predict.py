"""Prediction without a reference: every image once, in order, with the labels of the model after post-processing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from segmeter.evaluation.evaluate import predict
from segmeter.evaluation.manifest import Manifest
from segmeter.evaluation.predicted import CaseRun
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.postprocess.config import LargestComponentConfig, PostprocessConfig
from tests.evaluation.test_evaluate_resume import files
from tests.training.tiny import TinyCases, tiny_segmenter


class Untargeted(TinyCases):
    """Images alone, as a folder to predict has them."""

    def __getitem__(self, index):
        return replace(super().__getitem__(index), target=None)


def job(folder, **changes):
    predictor = Predictor(tiny_segmenter(), InferenceConfig(precision="float32", batch_size=2), torch.device("cpu"))
    fields = {
        "predictor": predictor,
        "dataset": Untargeted(count=5),
        "export": ExportConfig(),
        "postprocess": PostprocessConfig(),
        "folder": folder,
    }
    return CaseRun(**(fields | changes))


def stored(folder, case_id):
    return np.asarray(Image.open(folder / "predictions" / "labels" / f"{case_id}.png"))


def test_every_image_is_written_and_handed_over_in_order(tmp_path):
    work = job(tmp_path)
    assert predict(work) == 5
    assert sorted(work.dataset.read) == list(range(5))
    for index, name in enumerate(work.dataset.case_ids):
        expected = work.predictor.logits([work.dataset[index].image]).argmax(1)[0].numpy()
        np.testing.assert_array_equal(stored(tmp_path, name), expected)


def test_what_is_written_is_post_processed_and_may_be_left_out(tmp_path):
    steps = PostprocessConfig(steps=(LargestComponentConfig(),))
    predict(job(tmp_path / "raw"))
    predict(job(tmp_path / "steps", postprocess=steps))
    pairs = [[stored(tmp_path / name, f"case{index:02d}") for name in ("raw", "steps")] for index in range(5)]
    assert any((one != other).any() for one, other in pairs)
    predict(job(tmp_path / "clean", postprocess=steps, export=ExportConfig(labels=False, probs=True)))
    kinds = [path.name for path in (tmp_path / "clean" / "predictions").iterdir()]
    assert kinds == ["probs"]
    assert np.load(tmp_path / "clean" / "predictions" / "probs" / "case00.npy").shape == (3, 16, 16)


def test_images_on_another_scale_than_the_models_are_warned_of_once(tmp_path, caplog):
    class Twelve(Untargeted):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return replace(sample, image=np.clip(sample.image * 4095, 0, 4095).astype(np.uint16))

    predict(job(tmp_path / "12", dataset=Twelve(count=20)))
    (line,) = caplog.messages
    assert "uint16 from" in line
    assert "trained on another scale" in line
    caplog.clear()
    predict(job(tmp_path / "own"))
    assert caplog.messages == []


def test_an_interrupted_prediction_goes_on_to_the_same_bytes_and_reads_no_finished_case_again(tmp_path, monkeypatch):
    def add_and_leave(manifest, entry, add=Manifest.add):
        add(manifest, entry)
        if entry.case_id == "case03":
            raise KeyboardInterrupt

    predict(job(tmp_path / "whole"))
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "add", add_and_leave)
        with pytest.raises(KeyboardInterrupt):
            predict(job(tmp_path / "run"))
    cases = Untargeted(count=5)
    predict(job(tmp_path / "run", dataset=cases, resume=True))
    assert cases.read == [4]
    assert files(tmp_path / "run") == files(tmp_path / "whole")
