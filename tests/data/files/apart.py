"""Work for reader processes: it answers, crashes, hangs, prints, or takes memory."""

import os
import re
import signal
import sys

import numpy as np

from segmeter.errors import DataError

_seen: list[int] = []


def refuse(line):
    raise DataError(line)


def crash(*arguments):
    os.kill(os.getpid(), signal.SIGSEGV)


def harm():
    _seen.append(1)


def crash_if_harmed():
    if _seen:
        crash()
    return "sound"


def hang():
    """As native code hangs: no other thread of this process runs meanwhile, and no signal handler of Python's."""
    return re.match("(a+)+b", "a" * 60)


def take(size):
    return int(np.ones(size, np.uint8)[-1])


def talk():
    print("printed")
    os.write(1, b"written")
    os.write(2, b"x" * 10**6)  # more than a pipe holds
    return "quiet"


def loaded(*modules):
    import segmeter.data.files.medical
    import segmeter.data.masks.coco  # noqa: F401

    return [name for name in modules if name in sys.modules]
