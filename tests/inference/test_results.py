"""Predictions that cross beside the computation, on a fake stream where what is read too early is poison."""

import gc
import weakref
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from segmeter.bridge.decode import labels_to_numpy, probs_to_numpy
from segmeter.bridge.host_copier import open_transport
from segmeter.data.sample import Sample
from segmeter.errors import DataError, RunError
from segmeter.inference import results as outbox
from segmeter.inference.config import InferenceConfig
from segmeter.inference.predictor import Predictor
from segmeter.losses.focal import FocalLoss
from tests.bridge.fake_stream import FakeTransport
from tests.inference import parts
from tests.inference.parts import labels_of, stub
from tests.models.parts import make_card, make_pointwise

SHAPE = (6, 5)


class Log(FakeTransport):
    """Notes the order of what is begun, awaited, computed and done on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def start(self, sources):
        hosts, event = super().start(sources)
        event.name = f"{len(self.starts) - 1}"
        self.calls.append(f"send {event.name}")
        return hosts, event

    def wait(self, event):
        super().wait(event)
        self.calls.append(f"wait {event.name}")


@pytest.fixture
def stream(monkeypatch):
    """What a GPU's stream does, for every predictor of the test."""
    log = Log()
    monkeypatch.setattr(outbox, "open_transport", lambda device: log)
    return log


@pytest.fixture(params=["plain", "stream"])
def either(request, monkeypatch):
    """The CPU's plain copies, or the fake stream."""
    transport = Log() if request.param == "stream" else open_transport(torch.device("cpu"))
    monkeypatch.setattr(outbox, "open_transport", lambda device: transport)


def samples(count, shape=SHAPE, *, target=False, start=0):
    """Float images whose values tell the cases apart."""
    made = []
    for index in range(start, start + count):
        rng = np.random.default_rng(index)
        image = rng.normal(size=(*shape, 3)).astype(np.float32)
        truth = rng.integers(0, 3, shape).astype(np.uint8) if target else None
        made.append(Sample(case_id=f"case{index}", image=image, target=truth))
    return made


predictor = partial(parts.predictor, batch_size=2)


def cross_entropy(logits, target):
    assert target.dtype != torch.uint16, "which torch can neither compare nor index"
    return torch.nn.functional.cross_entropy(logits, target.long())


MIXED = [*samples(5), *samples(2, (9, 9), start=5), *samples(1, start=7)]


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("values", [{}, {"flips": True}, {"tile": 32}], ids=str)
@pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
def test_each_case_gets_its_own_labels_probs_and_loss(task, values):
    """Against the synchronous calls, case by case; the shapes differ, so that batches do. All are kept meanwhile."""
    segmenter = make_pointwise(task, 2 if task == "binary" else 3)
    spec, alone = segmenter.card.spec, predictor(segmenter, **values)
    cases = [*MIXED, *samples(2, (40, 70), start=8)]
    cases = [replace(case, target=np.full((1, 1), index, np.uint8)) for index, case in enumerate(cases)]
    found = list(predictor(segmenter, **values).predict(cases, probs=True, loss=lambda x, t: x.mean() + t.sum()))
    assert [each.sample.case_id for each in found] == [case.case_id for case in cases]
    for each, case in zip(found, cases, strict=True):
        logits = alone.logits([case.image])
        np.testing.assert_array_equal(
            each.labels, labels_to_numpy(logits, task=task, num_classes=spec.num_classes, ignore_index=255)[0]
        )
        np.testing.assert_allclose(each.probs, probs_to_numpy(logits, task=task)[0], rtol=1e-5, atol=1e-6)
        assert each.probs.dtype == np.float32
        assert each.loss == pytest.approx(float(logits.mean()) + int(case.target[0, 0]), rel=1e-5, abs=1e-6)
        assert (each.labels.flags.writeable, each.probs.flags.writeable) == (True, True)


def test_the_next_batch_is_computed_and_sent_before_the_last_one_is_awaited(stream):
    """The order that lets the device work while the host does; five sends: labels, and each case's loss and probs."""
    forward = stub(lambda image: stream.calls.append("forward") or image)
    for each in predictor(forward).predict(samples(6, target=True), probs=True, loss=cross_entropy):
        stream.calls.append(f"host {each.sample.case_id}")
    begun = ["forward", *["send"] * 5]
    assert [call.split()[0] for call in stream.calls[:12]] == 2 * begun
    assert [call for call in stream.calls[12:] if not call.startswith("wait")] == [
        *("host case0", "host case1", "forward", *(f"send {number}" for number in range(10, 15))),
        *("host case2", "host case3", "host case4", "host case5"),
    ]
    assert stream.calls[12] == "wait 0"
    assert stream.calls.index("wait 5") > stream.calls.index("send 14")


def test_on_the_cpu_a_case_comes_before_the_next_batch_is_computed():
    """Nothing could overlap, so nothing is held back."""
    calls = []
    for each in predictor(stub(lambda image: calls.append("forward") or image)).predict(samples(4)):
        calls.append(each.sample.case_id)
    assert calls == ["forward", "case0", "case1", "forward", "case2", "case3"]


@pytest.mark.usefixtures("either")
def test_logits_are_dropped_when_their_batch_is_on_its_way():
    alive = []

    def forward(image):
        gc.collect()
        assert sum(ref() is not None for ref in alive) == 0
        logits = image * 2
        alive.append(weakref.ref(logits))
        return logits

    gc.freeze()  # what other tests left, which takes long to look through
    assert len(list(predictor(stub(forward)).predict(samples(8)))) == 8
    gc.unfreeze()


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("dtype", ["float16", "uint8"])
def test_probabilities_cross_in_the_dtype_that_is_asked_for(dtype):
    """Rounded on the device as the host rounds them."""
    for values in ({}, {"tile": 32}):
        wide = predictor(**values).predict(samples(2, (40, 50)), probs=True)
        found = predictor(**values).predict(samples(2, (40, 50)), probs=True, probs_dtype=dtype)
        for ours, theirs in zip(found, wide, strict=True):
            rounded = np.rint(theirs.probs * np.float32(255)) if dtype == "uint8" else theirs.probs
            assert ours.probs.dtype == dtype
            np.testing.assert_array_equal(ours.probs, rounded.astype(dtype))


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("values", [{}, {"flips": True}, {"tile": 32}], ids=str)
@pytest.mark.parametrize(("value", "bad"), [("nan", 0), ("nan", 3), ("inf", 1), ("-inf", 4)])
def test_21_a_case_without_finite_logits_is_named_and_all_before_it_come_first(value, bad, values):
    """In the first or second place of its batch, and with a good batch behind it."""
    cases = samples(5, (40, 40), target=True)
    cases[bad].image[30, 7, 1] = float(value)
    taken = predictor(stub(lambda image: image), **values).predict(cases, probs=True, loss=cross_entropy)
    assert [next(taken).sample.case_id for _ in range(bad)] == [f"case{index}" for index in range(bad)]
    with pytest.raises(RunError, match=rf"the logits of case 'case{bad}' hold NaN or infinity"):
        next(taken)


@pytest.mark.usefixtures("either")
def test_cases_that_were_computed_come_before_the_error_of_the_next_batch():
    class Cases(list):
        def __getitem__(self, index):
            if index == 4:
                raise DataError("case4: no such file")
            return super().__getitem__(index)

    taken = predictor().predict(Cases(samples(6)))
    assert [next(taken).sample.case_id for _ in range(4)] == ["case0", "case1", "case2", "case3"]
    with pytest.raises(DataError, match="case4: no such file"):
        next(taken)


@pytest.mark.usefixtures("either")
def test_a_loss_is_that_of_the_case_and_none_without_a_target():
    cases = samples(5, target=True)
    cases[2] = replace(cases[2], target=None)
    cases[3] = replace(cases[3], target=cases[3].target.astype(np.uint16))
    found = list(predictor(stub(lambda image: image)).predict(cases, loss=cross_entropy))
    assert found[2].loss is None
    for each in (found[0], found[1], found[3], found[4]):
        logits = torch.from_numpy((each.sample.image - MEAN) / STD).permute(2, 0, 1)[None]
        expected = cross_entropy(logits, torch.from_numpy(each.sample.target.astype(np.int64))[None])
        assert each.loss == pytest.approx(float(expected), rel=1e-5)


MEAN, STD = (np.array(getattr(make_card(), name), np.float32) for name in ("mean", "std"))


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("values", [{}, {"tile": 32}], ids=str)
def test_a_target_that_the_loss_refuses_is_named(values):
    cases = samples(3, (40, 40), target=True)
    cases[1].target[0, 0] = 9
    with pytest.raises(DataError, match="case 'case1': focal_loss: expected `target` to hold"):
        list(predictor(**values).predict(cases, loss=FocalLoss("multiclass")))


@pytest.mark.usefixtures("either")
def test_the_ignore_value_decides_the_dtype_of_labels():
    """A map that is to hold 1000 later is uint16 from the start."""
    wide = predictor(stub(lambda image: image, ignore_index=1000))
    [found] = wide.predict(samples(1))
    assert found.labels.dtype == labels_of(wide, wide.logits([MIXED[0].image])).dtype == np.uint16


@pytest.mark.gpu
def test_a_gpu_says_what_its_synchronous_calls_say():
    cuda = Predictor(make_pointwise(), InferenceConfig(precision="float32", batch_size=2), torch.device("cuda"))
    for each, case in zip(list(cuda.predict(MIXED, probs=True)), MIXED, strict=True):
        logits = cuda.logits([case.image])
        np.testing.assert_array_equal(each.labels, labels_of(cuda, logits)[0])
        np.testing.assert_allclose(each.probs, probs_to_numpy(logits, task="multiclass")[0], rtol=1e-5, atol=1e-6)
