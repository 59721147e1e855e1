"""Dataset -> what its files' headers say is wrong with them, before any file is read."""

from collections.abc import Callable
from functools import partial

from segmeter.data.dataset import Dataset, check_same_size, turned_size
from segmeter.data.files.header import Header
from segmeter.data.files.images import check_image_header, check_mask_header
from segmeter.data.in_time import fetch_ahead
from segmeter.errors import DataError
from segmeter.parallel import map_in_threads
from segmeter.progress import track


def header_problems(dataset: Dataset) -> list[str]:
    """Read every header: one line for each file that can't be read, is not an image or mask, or differs in size."""
    ahead = fetch_ahead(range(len(dataset)), lambda index: dataset.pairs[index].files)
    checks = track(map_in_threads(partial(_header_problems, dataset), ahead), "checking headers", len(dataset))
    return [problem for found in checks for problem in found]


def _header_problems(dataset: Dataset, index: int) -> list[str]:
    pair, problems = dataset.pairs[index], list[str]()
    image = _try_header(dataset, index, 0, problems)
    if image is not None:
        check = partial(
            check_image_header, channels=dataset.in_channels, orientation=dataset.orientation, level=dataset.level
        )
        _note(problems, lambda: check(pair.image, image))
    for number, path in enumerate(pair.masks, 1):
        mask = _try_header(dataset, index, number, problems)
        if mask is not None:
            _note(problems, partial(check_mask_header, path, mask, label_map=dataset.label_map))
        if mask is not None and image is not None:
            size = turned_size(image, dataset.orientation)
            _note(problems, partial(check_same_size, pair.image, size, path, (mask.height, mask.width)))
    return problems


def _try_header(dataset: Dataset, index: int, number: int, problems: list[str]) -> Header | None:
    try:
        return dataset.header_of(index, number)
    except DataError as error:
        problems.extend(error.problems)
        return None


def _note(problems: list[str], check: Callable[[], None]) -> None:
    try:
        check()
    except DataError as error:
        problems.extend(error.problems)
