"""Decides which images are read in bands of lines, and refuses settings that need such an image whole."""

from collections.abc import Iterator
from dataclasses import replace

from segmeter.checks import expected
from segmeter.classes import ClassSpec
from segmeter.data.dataset import Dataset
from segmeter.data.planes import VolumeSet
from segmeter.errors import ConfigError
from segmeter.evaluation.predicted import CaseRun
from segmeter.export.config import ExportConfig
from segmeter.export.writer import check_volume_export
from segmeter.inference.config import WHOLE_PIXELS, InferenceConfig
from segmeter.inference.results import Loss, sums_by_bands
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.parallel import map_in_threads
from segmeter.postprocess.config import DistanceSplitConfig, PostprocessConfig, WatershedConfig
from segmeter.postprocess.pipeline import unbounded_steps

BANDED_PIXELS = 1 << 23  # of the largest image in tiles that is read at once: several small ones are read ahead


def check_streamable(job: CaseRun, *, loss: Loss | None = None, metrics: MetricsConfig | None = None) -> None:
    """Refuse, all at once, the settings that cases read in bands, or volumes, can't have.

    Raises
    ------
    ConfigError
        One line per setting.
    """
    dataset, steps = job.dataset, job.postprocess.steps
    if isinstance(dataset, VolumeSet):
        problems = check_volume_export(job.export, dataset.spec)
        rule, remedy = "to be left out for volumes", "Connected components are the objects of a volume."
        flat = [each.name for each in steps if isinstance(each, WatershedConfig | DistanceSplitConfig)]
        problems += [expected("postprocess", name, rule, "a step of pictures", remedy) for name in flat]
        if problems:
            raise ConfigError(problems)
    streamed = sorted(dataset.streamed_cases())
    needs = _whole_map_needs(job.export, job.postprocess, dataset.spec)
    if metrics is not None:
        needs += [(f"metrics.measures: {one.name}", "Leave it out; pixels are counted.") for one in metrics.measures]
        needs += [("metrics.calibration", "Set it to false.")] if metrics.calibration else []
    if loss is not None and not sums_by_bands(loss):
        needs.append(("loss", "Set loss=focal, which is a sum over pixels."))
    if streamed and needs:
        found = dataset.header_of(streamed[0])
        why = "a Zarr image" if found.format == "zarr" else f"{found.height} x {found.width} pixels"
        rule = f"to work by rows, as case {dataset.case_ids[streamed[0]]!r} is read by rows ({why})"
        raise ConfigError([expected("config", what, rule, "what needs it whole", remedy) for what, remedy in needs])


def _whole_map_needs(export: ExportConfig, postprocess: PostprocessConfig, spec: ClassSpec) -> list[tuple[str, str]]:
    """Find the settings that need a whole map, each with its remedy."""
    step, flags = "Leave it out, or set postprocess=none; an opening needs `fill`.", ("probs", "confidence")
    needs = [(f"postprocess.{name}", step) for name in unbounded_steps(postprocess.steps, spec)]
    needs += [(f"export.{name}", "Set it to false.") for name in flags if getattr(export, name)]
    return needs + ([("export.objects", "Set it to [].")] if export.objects else [])


def prefer_bands(
    dataset: Dataset, *, inference: InferenceConfig, export: ExportConfig, postprocess: PostprocessConfig
) -> Dataset:
    """Return a data set that reads images which are run in tiles in bands, unless something needs a whole map.

    The labels are the same either way; it takes less memory.
    """
    if _whole_map_needs(export, postprocess, dataset.spec):
        return dataset
    tile = inference.tile
    return replace(dataset, rows_above=WHOLE_PIXELS if tile is None else max(BANDED_PIXELS, tile**2))


def large_cases(dataset: Dataset) -> frozenset[int]:
    """Find the cases of more than `WHOLE_PIXELS`, several of which, with their probabilities, would fill the memory."""
    headers = map_in_threads(dataset.header_of, range(len(dataset)))
    return frozenset(index for index, found in enumerate(headers) if found.height * found.width > WHOLE_PIXELS)


def split_parts(indices: range, alone: frozenset[int]) -> Iterator[range]:
    """Split consecutive indices so that each of `alone` is a part of its own.

    Examples
    --------
    >>> list(split_parts(range(2, 8), frozenset({3, 4})))
    [range(2, 3), range(3, 4), range(4, 5), range(5, 8)]
    """
    start = indices.start
    for index in sorted(alone & set(indices)):
        if start < index:
            yield range(start, index)
        yield range(index, index + 1)
        start = index + 1
    if start < indices.stop:
        yield range(start, indices.stop)
