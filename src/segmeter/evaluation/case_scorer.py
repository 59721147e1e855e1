"""Measures one pair of mask files: its row of counts and measures, or the problems of its files.

Valid files are the rule, so values aren't checked first. Counting notices a value outside the classes. Only then is
every map checked, to name the file.
"""

import math
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, cast

from segmeter.checks import expected
from segmeter.data.files.refusals import show
from segmeter.data.sample import Reading
from segmeter.errors import DataError, InputError
from segmeter.evaluation.drive import CaseResult, MemoryBudget, check_memory
from segmeter.evaluation.manifest import Entry
from segmeter.evaluation.mask_pairs import MaskPair, limit_of
from segmeter.evaluation.pair_maps import PairLoader, PairMaps
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import CaseMaps, build_measures
from segmeter.metrics.measures.row import bands_of, make_row

# Peak bytes per pixel of a pair, measured on 12,000 x 12,000 uint8 masks and rounded up
_BYTES_TO_COUNT = 4
_BYTES_OF_OBJECTS = dict.fromkeys(("instances", "average_precision", "aji", "sizes"), 18)
_BYTES_BY_MEASURE = {"surface": 10, "boundary": 16, "cldice": 10, **_BYTES_OF_OBJECTS}
_BYTES_OTHERWISE = 40  # For distances of objects, and for measures of users
_BYTES_OF_IMAGE = 16  # Added for an image: three channels in float32, beside its own decoding
_BYTES_OF_NUMBERS = 16  # Added if files hold object numbers: 32 in all were measured for int64
_MOST_TABLES = 6  # Memory holds up to this many tables of counts at a time
_BUDGET = MemoryBudget()  # All threads of this process share it


class CaseScorer:
    """Measures one pair at a time; picklable, so that processes can share the work.

    Parameters
    ----------
    reading
        How the files of a pair are read.
    metrics
        The group `metrics` of the configuration.
    flag_missing
        Whether rows say which cases had no prediction.
    processes
        How many processes measure side by side, and share the memory.
    """

    def __init__(
        self, reading: Reading, metrics: MetricsConfig, *, flag_missing: bool = False, processes: int = 1
    ) -> None:
        self.reading = reading
        self.metrics = metrics
        self.flag_missing = flag_missing
        self.processes = processes
        self._loader = PairLoader(reading, metrics.spacing)
        self._measures = build_measures(metrics, reading.spec)
        peak_bytes = _BYTES_TO_COUNT
        for measure in metrics.measures:
            between_objects = getattr(measure, "distances", False)
            needed = _BYTES_OTHERWISE if between_objects else _BYTES_BY_MEASURE.get(measure.name, _BYTES_OTHERWISE)
            peak_bytes = max(peak_bytes, needed)
        number_bytes = _BYTES_OF_NUMBERS if reading.instances else 0
        self._bytes_per_pixel = peak_bytes * reading.spec.label_dtype.itemsize + number_bytes
        counts_bytes = 8 * _MOST_TABLES * math.prod(reading.spec.counts_shape)
        what = f"score: counts of {reading.spec.num_classes} classes"
        check_memory(counts_bytes, what=what, remedy="Name those that occur.")

    def __call__(self, pair: MaskPair) -> CaseResult:
        """Measure a pair. Problems of its files are returned, so that all pairs' problems can be reported together."""
        in_time = limit_of(pair, self.reading.timeout_s)
        remedy = "Free memory, cut the pair into tiles, or measure less (metrics.measures)."
        bytes_per_pixel = len(pair.references) * self._bytes_per_pixel + (_BYTES_OF_IMAGE if pair.image else 0)
        try:
            with ExitStack() as stack:
                pixels, is_large = in_time(partial(self._loader.find_size, pair))
                needed = 0 if is_large else self.processes * pixels * bytes_per_pixel
                stack.enter_context(_BUDGET.hold(needed, what=f"case {pair.case_id!r}", remedy=remedy))
                if is_large:
                    loaded = stack.enter_context(self._open_large(pair))
                else:
                    loaded = in_time(partial(self._loader.load, pair))
                try:
                    row = make_row(loaded.maps, self._measures, loaded.problems)
                except InputError as error:
                    if isinstance(error, DataError):  # it names its file
                        raise
                    return tuple(self._explain(pair, loaded)) or error.problems
            spacing = loaded.spacing
            changes = dict[str, Any]()
            if spacing.spacing:
                changes |= {"spacing": spacing.spacing, "unit": spacing.unit}
            extra = {"resampled": float(loaded.resampled)} if self.reading.resample != "refuse" else {}
            extra |= {"missing": float(not pair.predictions)} if self.flag_missing else {}
            if extra or changes:
                row = replace(row, extra=extra, **changes)
            return Entry(case_id=pair.case_id, row=row, sha256=loaded.sha256, resume_facts=vars(spacing))
        except InputError as error:
            return error.problems

    def _open_large(self, pair: MaskPair) -> AbstractContextManager[PairMaps]:
        """Open a pair that is read in bands, unless a setting needs its whole maps."""
        data_keys = {"instances": self.reading.instances, "invalid": self.reading.spec.count_invalid}
        needs = [f"metrics.measures: {measure.name}" for measure in self.metrics.measures]
        needs += [f"data.{key}" for key, value in data_keys.items() if value]
        needs += ["metrics.calibration"] if self.metrics.calibration else []
        if needs:
            rule = "to fit into memory, as a larger case is read in bands and can only be counted"
            remedy = f"Leave out {', '.join(needs)}, or cut it into tiles."
            raise DataError(expected(show(pair.references[0]), "map", rule, "a larger one", remedy))
        return self._loader.open(pair)

    def read(self, pair: MaskPair) -> CaseMaps:
        """Read the whole target and labels of a case, and check every value.

        Raises
        ------
        DataError
            With every problem of its files; each line names one.
        """
        loaded = limit_of(pair, self.reading.timeout_s)(partial(self._loader.load, pair))
        if problems := loaded.problems():
            raise DataError(problems)
        return cast(CaseMaps, loaded.maps)

    def _explain(self, pair: MaskPair, loaded: PairMaps) -> list[str]:
        """Name the files for which a pair can't be counted, if any: those with values that are not labels.

        Otherwise, the prediction may have the ignored value where its reference has a class.
        """
        if problems := loaded.problems():
            return problems
        spec = self.reading.spec
        undecided = (spec.is_ignored(labels) & spec.valid(target) for target, labels in bands_of(loaded.maps))
        pixels = sum(int(band.sum()) for band in undecided)
        if not pixels:
            return []
        rule = "to hold a class wherever its reference does"
        remedy = "A tool that leaves pixels undecided has to decide on them, or be scored on a class of its own."
        paths = pair.predictions or pair.references  # A case without a prediction can only fail by its reference
        where = show(paths[0].parents[1] / pair.stem if len(pair.predictions) > 1 else paths[0])
        given = f"{pixels} pixels of the ignored value {spec.values[-1]}"
        return [expected(where, "prediction", rule, given, remedy)]
