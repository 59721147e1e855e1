"""Imported by every process that has this folder in PYTHONPATH: files named $HANG open so many times, then never."""

import os
import time
from typing import Any

_open, _left = os.open, int(os.environ["HANG_AFTER"])


def _open_or_hang(path: Any, *given: Any, **options: Any) -> int:
    global _left
    if str(path).endswith(os.environ["HANG"]):
        _left -= 1
        if _left < 0:
            time.sleep(10**6)
    return _open(path, *given, **options)


os.open = _open_or_hang
os.supports_dir_fd.add(_open_or_hang)  # or rmtree would refuse
