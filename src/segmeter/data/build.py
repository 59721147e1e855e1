"""configuration -> Dataset."""

from segmeter.data.config import DATA, DataConfig
from segmeter.data.dataset import Dataset


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
    DataError
        Files are missing, unpaired, unreadable or of two sizes.
    """
    dataset: Dataset = DATA.build(config, split=split or config.split)
    return dataset
