"""Measures one pair of mask files: its row of counts and measures, or the problems of its files."""

import math
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, cast

from numpy.typing import NDArray

from segmeter.checks import expected
from segmeter.data.files.sniff import show
from segmeter.data.sample import Reading
from segmeter.errors import DataError, InputError
from segmeter.evaluation.drive import Outcome, Room, check_memory
from segmeter.evaluation.manifest import Entry
from segmeter.evaluation.pair_maps import PairMaps, PairReader
from segmeter.evaluation.pairing import MaskPair, limit_of
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import make_row

# Peak bytes per pixel of a pair, measured on 12,000 x 12,000 uint8 masks and rounded up
_COUNTED = 4
_OBJECTS = dict.fromkeys(("instances", "average_precision", "aji", "sizes"), 18)
_MEASURED = {"surface": 10, "boundary": 16, "cldice": 10, **_OBJECTS}
_OTHERWISE = 40  # distances of objects, and measures of users
_IMAGE = 16  # more for an image of three channels in float32 beside its own decoding
_NUMBERED = 16  # more if files hold object numbers: 32 in all were measured for int64
_TABLES = 6  # of counts that are held at a time
_ROOM = Room()  # memory that all threads of this process share


class CaseScorer:
    """Measures one pair at a time; picklable, so that processes can share the work.

    Parameters
    ----------
    reading
        How its files are read.
    metrics
        Its group of the configuration.
    flag_missing
        Whether rows say which cases had no prediction.
    processes
        How many processes measure side by side, and share the memory.
    """

    def __init__(
        self, reading: Reading, metrics: MetricsConfig, *, flag_missing: bool = False, processes: int = 1
    ) -> None:
        self.reading, self.metrics = reading, metrics
        self.flag_missing, self.processes = flag_missing, processes
        self._reader = PairReader(reading, metrics.spacing)
        self._measures = build_measures(metrics, reading.spec)
        most = _COUNTED
        for measure in metrics.measures:
            far = getattr(measure, "distances", False)  # those of objects
            most = max(most, _OTHERWISE if far else _MEASURED.get(measure.name, _OTHERWISE))
        numbers = _NUMBERED if reading.instances else 0
        self._bytes_per_pixel = most * reading.spec.label_dtype.itemsize + numbers  # at the peak
        counts = 8 * _TABLES * math.prod(reading.spec.counts_shape)
        what = f"score: counts of {reading.spec.num_classes} classes"
        check_memory(counts, what=what, remedy="Name those that occur.")

    def __call__(self, pair: MaskPair) -> Outcome:
        """Measure a pair. Problems of its files are returned, so that those of all pairs can be reported together."""
        in_time = limit_of(pair, self.reading.timeout_s)
        is_large, pixels = in_time(partial(self._reader.look, pair))
        remedy = "Free memory, cut the pair into tiles, or measure less (metrics.measures)."
        each = len(pair.references) * self._bytes_per_pixel + (_IMAGE if pair.image else 0)
        try:
            with ExitStack() as held:
                if is_large:
                    found = held.enter_context(self._open_large(pair))
                else:
                    needed = self.processes * pixels * each
                    held.enter_context(_ROOM.hold(needed, what=f"case {pair.case_id!r}", remedy=remedy))
                    found = in_time(partial(self._reader.load, pair))
                row = make_row(found.maps, self._measures, partial(self._explain, pair, found))
            spacing, changes = found.spacing, dict[str, Any]()
            if spacing.spacing:
                changes |= {"spacing": spacing.spacing, "unit": spacing.unit}
            extra = {"resampled": float(found.resampled)} if self.reading.resample != "refuse" else {}
            extra |= {"missing": float(not pair.predictions)} if self.flag_missing else {}
            if extra or changes:
                row = replace(row, extra=extra, **changes)
            return Entry(case_id=pair.case_id, row=row, sha256=found.sha256, record=vars(spacing))
        except InputError as error:
            return error.problems
        except MemoryError:
            return (f"case {pair.case_id!r}: out of memory. {remedy}",)

    def _open_large(self, pair: MaskPair) -> AbstractContextManager[PairMaps]:
        """Open a pair that is read in bands, unless something needs its whole maps."""
        whole = {"instances": self.reading.instances, "invalid": self.reading.spec.count_invalid}
        needs = [f"metrics.measures: {measure.name}" for measure in self.metrics.measures]
        needs += [f"data.{key}" for key, given in whole.items() if given]
        needs += ["metrics.calibration"] if self.metrics.calibration else []
        if needs:
            rule = "to fit into memory, as a larger case is read in bands and can only be counted"
            remedy = f"Leave out {', '.join(needs)}, or cut it into tiles."
            raise DataError(expected(show(pair.references[0]), "map", rule, "a larger one", remedy))
        return self._reader.open(pair)

    def read(self, pair: MaskPair) -> CaseMaps:
        """Read target and labels of a case, whole, with every value checked.

        Raises
        ------
        DataError
            With every problem of its files; each line names one.
        """
        found = limit_of(pair, self.reading.timeout_s)(partial(self._reader.load, pair))
        if problems := found.problems():
            raise DataError(problems)
        return cast(CaseMaps, found.maps)

    def _explain(
        self, pair: MaskPair, found: PairMaps, target: NDArray[Any], labels: NDArray[Any], *, hidden: bool
    ) -> list[str]:
        """Name the files with values that are not labels, or else refuse a prediction that contains the ignore value
        where the target does not.
        """
        problems, spec = found.problems(), self.reading.spec
        if hidden or problems:
            return problems
        pixels = int((spec.is_ignored(labels) & spec.valid(target)).sum())
        rule = "to hold a class wherever its reference does"
        remedy = "A tool that leaves pixels undecided has to decide on them, or be scored on a class of its own."
        paths = pair.predictions or pair.references  # without predictions, it is the reference
        where = show(paths[0].parents[1] / pair.stem if len(pair.predictions) > 1 else paths[0])
        given = f"{pixels} pixels of the ignored value {spec.values[-1]}"
        return [expected(where, "prediction", rule, given, remedy)]
