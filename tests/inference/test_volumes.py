"""The prediction of a volume is that of its planes, in the order of its file."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from segmeter.data.planes import VolumeSet
from segmeter.data.sample import Pair, Reading
from segmeter.evaluation.predicted import predict_volume
from segmeter.models.segmenter import Segmenter
from tests.inference.parts import predictor
from tests.models.parts import Stub, make_card, make_spec

SHAPE = (4, 6, 5)


def volume_of(folder, spec, planes):
    voxels = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    masks = spec.num_classes if spec.is_multilabel else 1
    files = {"image.npy": voxels} | {f"mask{k}.npy": (voxels > k).astype(np.uint8) for k in range(masks)}
    for name, pixels in files.items():
        np.save(folder / name, pixels)
    pair = Pair(case_id="a", paths=tuple(str(folder / name) for name in files))
    data = VolumeSet(reading=Reading(spec=spec), in_channels=1, split="all", pairs=(pair,), planes=planes)
    return data.open_volume(0), voxels


def predictor_of(spec):
    """Channel k of the logits is k x the image, or image - k for multilabel."""

    def logits(image):
        return torch.cat([image - k if spec.is_multilabel else image * k for k in range(spec.num_classes)], 1)

    card = replace(make_card(spec, in_channels=1), mean=(0.0,), std=(1.0,))
    return predictor(Segmenter(Stub(logits), card), batch_size=3)


@pytest.mark.parametrize("planes", ["k", "j", "i"])
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_each_voxel_has_the_label_of_its_plane(task, planes, tmp_path):
    spec = make_spec(2, task)
    volume, voxels = volume_of(tmp_path, spec, planes)
    found = predict_volume(predictor_of(spec), volume, probs=True)
    wanted = np.stack([voxels > 0, voxels > 1]) if task == "multilabel" else voxels > 0
    np.testing.assert_array_equal(found.labels, wanted)
    assert found.labels.dtype == np.uint8
    assert found.probs.shape == (2, *SHAPE)
    np.testing.assert_allclose(found.probs[-1], 1 / (1 + np.exp(-(voxels - (task == "multilabel")))), rtol=1e-5)
    np.testing.assert_array_equal(found.sample.target, wanted)
    assert (found.sample.case_id, found.sample.plane_axis) == ("a", "kji".index(planes))


def test_terms_of_the_loss_are_added_over_the_planes(tmp_path):
    spec = make_spec(2, "multiclass")
    volume, voxels = volume_of(tmp_path, spec, "j")

    def loss(logits, target):
        return torch.stack([logits[:, 1].double().sum(), target.double().sum()])[None]

    found = predict_volume(predictor_of(spec), volume, loss=loss)
    np.testing.assert_allclose(found.loss, [[voxels.sum(dtype=float), (voxels > 0).sum()]], rtol=1e-5)
    assert found.probs is None
