"""Warnings are shown at once and kept for the log of the run that is opened later; an error is shown once elsewhere."""

import logging
import threading

from segmeter.cli.messages import logged, shown_warnings

LOG = logging.getLogger("segmeter.somewhere")


def test_what_was_said_before_the_run_was_opened_is_in_its_log(tmp_path, capsys):
    with shown_warnings():
        LOG.warning("early %d", 1)
        with logged(tmp_path):
            LOG.warning("late")
            LOG.info("quiet")
            LOG.info("shown", extra={"shown": True})
        LOG.warning("after")
    assert capsys.readouterr().err == "warning: early 1\nwarning: late\nshown\nwarning: after\n"
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [line.split(" segmeter.somewhere ")[1] for line in lines] == ["early 1", "late", "quiet", "shown"]


def test_a_second_run_does_not_get_the_warnings_of_the_first(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with shown_warnings():
        for name in ("one", "two"):
            with logged(tmp_path / name):
                LOG.warning(name)
    assert "one" not in (tmp_path / "two" / "log.txt").read_text()


def test_what_ends_a_thread_is_one_line(capsys):
    def fail():
        raise ValueError("of this")

    with shown_warnings():
        thread = threading.Thread(target=fail, name="reader")
        thread.start()
        thread.join()
    assert capsys.readouterr().err == "warning: reader ended: ValueError: of this\n"
