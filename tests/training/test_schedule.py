import numpy as np
import pytest

from segmeter.training.config import SCHEDULES, ConstantConfig, CosineConfig, OneCycleConfig, PolyConfig


def test_cosine_by_hand():
    factor = SCHEDULES.build(CosineConfig(warmup=0.2, final=0.1))
    assert factor(0.0) == 0.01
    assert factor(0.1) == pytest.approx(0.01 + 0.99 * 0.5)
    assert factor(0.2) == 1.0
    assert factor(0.6) == pytest.approx(0.55)  # half of the way: the middle of 1 and 0.1
    assert factor(0.4) == pytest.approx(0.1 + 0.9 * (1 + np.sqrt(0.5)) / 2)  # a quarter: cos 45 degrees
    assert factor(1.0) == pytest.approx(0.1)


def test_one_cycle_by_hand():
    factor = SCHEDULES.build(OneCycleConfig(rise=0.25, start=0.2, final=0.1))
    assert factor(0.0) == pytest.approx(0.2)
    assert factor(0.125) == pytest.approx(0.6)
    assert factor(0.25) == pytest.approx(1.0)
    assert factor(0.625) == pytest.approx(0.55)
    assert factor(1.0) == pytest.approx(0.1)


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_every_schedule_rises_then_falls_and_stays_within_0_and_1_beyond_the_end(name):
    factor = SCHEDULES.build(SCHEDULES.schema(name)())
    values = np.array([factor(p) for p in np.linspace(0.0, 1.2, 241)])
    peak = int(values.argmax())
    assert values.min() >= 0.0
    assert values.max() == pytest.approx(1.0)
    assert np.all(np.diff(values[: peak + 1]) >= 0)
    assert np.all(np.diff(values[peak:]) <= 1e-12)


def test_poly_and_constant_by_hand():
    factor = SCHEDULES.build(PolyConfig(warmup=0.5, power=2.0))
    assert [factor(p) for p in (0.5, 0.75, 1.0)] == [1.0, 0.25, 0.0]
    assert SCHEDULES.build(ConstantConfig(warmup=0.0))(0.5) == 1.0
