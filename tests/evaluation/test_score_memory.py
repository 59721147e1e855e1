"""What a case leaves in memory while a hundred thousand others are scored."""

import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from segmeter.classes import ClassSpec
from segmeter.data.sample import Reading
from segmeter.evaluation import cases
from segmeter.evaluation.manifest import Entry
from segmeter.evaluation.pairing import MaskPair, Pairing
from segmeter.evaluation.score import Scoring, score
from segmeter.evaluation.spacings import UNKNOWN_SPACING
from segmeter.metrics.cases import table as rows
from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.statistics import bootstrap, columns
from segmeter.metrics.summary import scoreboard

K = 19
MOST_BYTES = 1500  # a case: its counts, which hardly compress here, are 500, and the paths of its files 400
SPEC = ClassSpec(task="multiclass", names=tuple(f"class_{k}" for k in range(K)), colours=((0, 0, 0),) * K)


def invented(pair: MaskPair) -> Entry:
    """A row as a picture of 2 megapixels leaves it, without the picture."""
    rng = np.random.default_rng(int(pair.stem.removeprefix("case_")))
    counts = rng.integers(0, 3000, (K, K)) * (rng.random((K, K)) < 0.3) + np.diag(rng.integers(0, 10**6, K))
    row = CaseRow(case_id=pair.case_id, height=1024, width=2048, counts=counts)
    digest = f"{int(pair.stem.removeprefix('case_')):064}"
    return Entry(case_id=pair.case_id, row=row, sha256=digest, record=vars(UNKNOWN_SPACING))


def named(folder: Path, name: str) -> MaskPair:
    sides = (folder / "references" / f"{name}.png", folder / "predictions" / f"{name}.png")
    return MaskPair(case_id=name, stem=name, references=sides[:1], predictions=sides[1:])


def peak(folder: Path, count: int) -> int:
    folder.mkdir()
    tracemalloc.start()
    names = (f"case_{i:06}" for i in range(count))
    job = Scoring(
        pairing=Pairing(pairs=[*map(partial(named, folder), names)], extra=()),
        reading=Reading(spec=SPEC, label_map={}, max_pixels=1),
        metrics=MetricsConfig(bootstrap=100),
        folder=folder,
    )
    score(job)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most + pa.default_memory_pool().max_memory()  # which is never set back


@pytest.mark.slow
def test_memory_grows_by_little_more_than_the_counts_of_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what is held whatever the number of cases: here less of it, so that few cases show it.

    Mutation seen to fail: the columns that are resampled made all at once.
    """
    monkeypatch.setattr(cases.CaseScorer, "__call__", lambda _, pair: invented(pair))
    monkeypatch.setattr(rows, "BLOCK", 64)
    monkeypatch.setattr(scoreboard, "_CASES", 64)
    monkeypatch.setattr(bootstrap, "_BLOCK", 1000)
    monkeypatch.setattr(columns, "_DRAWN", 1000)
    monkeypatch.setattr(columns, "_LEAST_ROWS", 8)
    monkeypatch.setattr(columns, "_MANY_DRAWS", 0)
    peak(tmp_path / "warm", 10)
    few, many = peak(tmp_path / "few", 300), peak(tmp_path / "many", 1300)
    assert 100 < (many - few) / 1000 < MOST_BYTES
