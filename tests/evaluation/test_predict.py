"""Prediction without a reference: every image once, in order, with the labels of the model after post-processing."""

from dataclasses import replace

import numpy as np
import torch
from PIL import Image

from segmeter.evaluation.case_run import NoPictures
from segmeter.evaluation.predict import PredictionRun, predict
from segmeter.export.config import ExportConfig
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.postprocess.config import LargestComponentConfig, PostprocessConfig
from tests.training.tiny import TinyCases, tiny_segmenter


class Untargeted(TinyCases):
    """Images alone, as a folder to predict has them."""

    def __getitem__(self, index):
        return replace(super().__getitem__(index), target=None)


class Seen(NoPictures):
    """Notes each case, and what was kept of an interrupted run."""

    def __init__(self, seen, restored=None):
        self.seen, self.restored = seen, restored

    def draw(self, prediction, cleaned, row):
        self.seen.append((prediction.sample.case_id, cleaned.labels))
        return {}

    def remember(self, case_id, row):
        if self.restored is not None:
            self.restored.append(case_id)


def job(folder, seen, **changes):
    predictor = Predictor(tiny_segmenter(), InferenceConfig(precision="float32", batch_size=2), torch.device("cpu"))
    fields = {
        "predictor": predictor,
        "dataset": Untargeted(count=5),
        "export": ExportConfig(),
        "postprocess": PostprocessConfig(),
        "folder": folder,
        "pictures": Seen(seen),
    }
    return PredictionRun(**(fields | changes))


def stored(folder, case_id):
    return np.asarray(Image.open(folder / "predictions" / "labels" / f"{case_id}.png"))


def test_every_image_is_written_and_handed_over_in_order(tmp_path):
    seen = []
    work = job(tmp_path, seen)
    assert predict(work) == 5
    assert [name for name, _ in seen] == list(work.dataset.case_ids)
    for index, (name, labels) in enumerate(seen):
        expected = work.predictor.logits([work.dataset[index].image]).argmax(1)[0].numpy()
        np.testing.assert_array_equal(labels, expected)
        np.testing.assert_array_equal(stored(tmp_path, name), expected)


def test_what_is_written_is_post_processed_and_may_be_left_out(tmp_path):
    seen, raw = [], []
    predict(job(tmp_path / "raw", raw))
    steps = PostprocessConfig(steps=(LargestComponentConfig(),))
    predict(job(tmp_path / "clean", seen, postprocess=steps, export=ExportConfig(labels=False, probs=True)))
    assert any((one != other).any() for (_, one), (_, other) in zip(raw, seen, strict=True))
    kinds = [path.name for path in (tmp_path / "clean" / "predictions").iterdir()]
    assert kinds == ["probs"]
    assert np.load(tmp_path / "clean" / "predictions" / "probs" / "case00.npy").shape == (3, 16, 16)


def test_images_on_another_scale_than_the_models_are_warned_of_once(tmp_path, caplog):
    class Twelve(Untargeted):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return replace(sample, image=np.clip(sample.image * 4095, 0, 4095).astype(np.uint16))

    predict(job(tmp_path / "12", [], dataset=Twelve(count=20)))
    (line,) = caplog.messages
    assert "uint16 from" in line
    assert "trained on another scale" in line
    caplog.clear()
    predict(job(tmp_path / "own", []))
    assert caplog.messages == []
