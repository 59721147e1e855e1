"""configuration -> Dataset."""

from segmeter.checks import expected
from segmeter.data.config import DATA, SPLITS, DataConfig
from segmeter.data.dataset import Dataset
from segmeter.errors import ConfigError


def build_dataset(config: DataConfig, *, split: str | None = None) -> Dataset:
    """Open one split of the data set that the configuration describes.

    Every file's header is read, so that what can't be used is refused, all of it at once, before the first step.

    Parameters
    ----------
    config
        A schema of the registry `DATA`.
    split
        "train", "val", "test" or "all"; None takes ``config.split``.

    Raises
    ------
    ConfigError
        There is no such split.
    DataError
        Files are missing, unpaired, unreadable or of two sizes.
    """
    split = split or config.split
    if split not in SPLITS:
        raise ConfigError(expected("data", "split", f"to be one of {', '.join(SPLITS)}", repr(split)))
    dataset: Dataset = DATA.build(config, split=split)
    return dataset
