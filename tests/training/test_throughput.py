import pytest

import segmeter.training.clock as throughput


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: now[0])
    return now


def test_rates_by_hand_with_validations_left_out(clock):
    watch = throughput.Throughput()
    watch.run()
    clock[0] += 2.0
    watch.run()
    watch.add(8, 0.5)
    watch.hold()
    clock[0] += 100.0  # a validation
    watch.hold()
    watch.run()
    clock[0] += 2.0
    watch.add(12, 0.5)
    rates, stages = watch.read()
    assert (rates.images_per_second, rates.data_wait, stages) == (5.0, 0.25, {"data": 1.0, "step": 3.0})
    watch.run()
    clock[0] += 1.0
    watch.add(5, 0.0)
    assert watch.read()[0].images_per_second == 5.0
    assert (watch.whole.images_per_second, watch.whole.data_wait) == (5.0, 0.2)


def test_no_time_is_no_division_by_zero(clock):
    rates, _ = throughput.Throughput().read()
    assert (rates.images_per_second, rates.data_wait) == (0.0, 0.0)
