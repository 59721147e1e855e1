import numpy as np

from segmeter.training.data.augment_config import AugmentConfig
from segmeter.training.data.cases import FixedBatches
from segmeter.training.data.sampling import SampleSource
from tests.training.tiny import TinyCases


def source(cases, **config):
    return SampleSource(cases, AugmentConfig(**config), batch_size=4, seed=3)


def test_every_epoch_has_the_first_batches_of_the_first():
    cases = TinyCases()
    whole = source(cases, crop=(16, 16), resolution=0.5)
    fixed = FixedBatches(whole, 2)
    assert len(fixed) == 2
    for epoch, index, progress in ((0, 1, 0.0), (9, 1, 0.7)):
        for ours, theirs in zip(fixed.batch(epoch, index, progress), whole.batch(0, 1, 1.0), strict=False):
            np.testing.assert_array_equal(ours, theirs)


def test_there_are_no_more_batches_than_an_epoch_has():
    assert len(FixedBatches(source(TinyCases(count=5), brightness=0, contrast=0, crop=None), 64)) == 1


def test_the_samples_are_cases_named_after_their_own():
    cases = TinyCases(count=3)
    fixed = FixedBatches(source(cases, crop=(16, 16)), 2)
    found = fixed.cases(cases.case_ids, cases.spec)
    assert len(found) == len(set(found.case_ids)) == 8
    image, target, numbers = fixed.batch(0, 1, 0.0)[:3]
    for place, number in enumerate(numbers):
        sample = found[4 + place]
        assert sample.case_id == f"{5 + place}-case{number % 3:02d}"
        np.testing.assert_array_equal(sample.image, image[place])
        np.testing.assert_array_equal(sample.target, target[place])


def test_other_pixels_have_another_fingerprint():
    prints = [
        FixedBatches(source(TinyCases(salt=salt)), 1).cases(TinyCases().case_ids, TinyCases().spec)
        for salt in (0, 0, 1)
    ]
    assert prints[0].fingerprint() == prints[1].fingerprint() != prints[2].fingerprint()
    assert len(prints[0].contents()) == 4
