"""A plugin that lets a process of a training fail as SEGMETER_TEST_FAULT says; see `tests.distributed.broken`."""

from tests.distributed.broken import install

install()
