"""Make the row of one case, with its counts and measures, from its maps."""

from collections.abc import Sequence
from dataclasses import replace

from segmeter.metrics.cases.table import CaseRow
from segmeter.metrics.measures.protocol import OBJECTS, CaseMaps, Measure, measure_case
from segmeter.metrics.pixels.confusion import count_case
from segmeter.metrics.pixels.target_hash import hash_objects, hash_target


def make_row(maps: CaseMaps, measures: Sequence[Measure]) -> CaseRow:
    """Count a case and measure it.

    Parameters
    ----------
    maps
        Reference and prediction.
    measures
        From `build_measures`.

    Returns
    -------
    CaseRow
        Without loss, changed pixels and spacing, which the maps do not tell.

    Raises
    ------
    InputError
        A counted pixel is outside the classes, or a measure can't be taken of such maps.
    """
    *depth, height, width = maps.shape
    row = CaseRow(
        case_id=maps.case_id,
        height=height,
        width=width,
        depth=depth[0] if depth else None,
        counts=count_case(maps.target, maps.labels, maps.spec),
        target_crc32=hash_target(maps.target, maps.spec),
    )
    return measure_row(row, maps, measures)


def measure_row(row: CaseRow, maps: CaseMaps, measures: Sequence[Measure]) -> CaseRow:
    """Add the measures of a case that was counted; raises as `make_row`."""
    measured = measure_case(maps, measures)
    return replace(
        row,
        measured=measured,
        objects=maps.kept.get(OBJECTS, b""),
        objects_crc32=None if maps.target_instances is None else hash_objects(maps.target_instances),
    )
