"""The account of a run: what threads add is added up, whoever adds it."""

from concurrent.futures import ThreadPoolExecutor

from segmeter.stages import Stages


def test_seconds_and_bytes_add_up_over_threads():
    stages = Stages()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(50):
            pool.submit(stages.add, "read", 0.5)
            pool.submit(stages.crossed, "to the host", 3)
    assert stages.seconds()["read"] == 25
    assert stages.seconds()["forward"] == 0
    assert stages.bytes() == {"to the device": 0, "to the host": 150}


def test_the_report_has_every_stage_and_both_ways():
    stages = Stages()
    with stages.timed("measure"):
        pass
    stages.crossed("to the device", 2_500_000)
    time, crossed = stages.report().splitlines()
    for stage in ("read", "forward", "transfer", "post-process", "measure", "write"):
        assert f"{stage} " in time
    assert crossed == "crossed   2.5 MB to the device, 0.0 MB to the host"
