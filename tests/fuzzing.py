"""Tests of many random cases: `make test-all` runs a sample of them, `make fuzz` runs them whole and records what it saw.

Such a test is marked `fuzz`. It asks `rounds` or `sampled` how much to do, and hands `record` its figures at the end.
"""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from benchmarks.record import RESULTS, circumstances, update_record

Row = TypeVar("Row")
WHOLE = os.environ.get("SEGMETER_FUZZ") == "whole"


def rounds(sample: int, whole: int) -> int:
    """Number of random cases: `whole` in `make fuzz`, `sample` elsewhere."""
    return whole if WHOLE else sample


def sampled(rows: Sequence[Row], sample: int, *, seed: int = 0) -> list[Row]:
    """All rows in `make fuzz`; elsewhere a seeded choice of `sample` of them, in order."""
    if WHOLE or sample >= len(rows):
        return list(rows)
    chosen = np.random.default_rng(seed).choice(len(rows), sample, replace=False)
    return [rows[place] for place in sorted(chosen)]


def record(name: str, **figures: Any) -> None:
    """Keep a test's figures in `benchmarks/results/fuzz.json`; does nothing outside of `make fuzz`."""
    if WHOLE:
        update_record(RESULTS / "fuzz.json", name, circumstances() | figures)
