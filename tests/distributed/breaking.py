"""A plugin that lets a process of a training fail as SEGMETER_TEST_FAULT says; see `tests.distributed.broken`."""

import os

from tests.distributed.broken import FAULT, install

if FAULT in os.environ:
    install()
