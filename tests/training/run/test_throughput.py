import pytest

import segmeter.training.run.throughput as throughput


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
    rates = watch.read()
    assert (rates.images_per_second, rates.data_wait) == (5.0, 0.25)
    watch.run()
    clock[0] += 1.0
    watch.add(5, 0.0)
    assert watch.read().images_per_second == 5.0
    assert watch.overall() == throughput.Rates(images_per_second=5.0, data_wait=0.2)


def test_no_time_is_no_division_by_zero(clock):
    assert throughput.Throughput().read() == throughput.Rates(images_per_second=0.0, data_wait=0.0)
