"""Dataset -> Dataset that keeps decoded cases in memory, up to a limit in bytes."""

import threading

from segmeter.data.dataset import Dataset
from segmeter.data.sample import Sample


class CachedDataset:
    """Reads each case once, as long as the decoded arrays fit into `max_bytes`; later cases are read again each time.

    Nothing is evicted: an epoch visits every case once, so that any order of eviction would always drop the case that
    is needed next. Arrays from here are read-only, as they are shared. Threads may read at once; a copy in another
    process starts empty.

    Parameters
    ----------
    dataset
        What to read from.
    max_bytes
        The most that the kept arrays take together, >= 0.
    """

    def __init__(self, dataset: Dataset, max_bytes: int) -> None:
        self.dataset = dataset
        self.max_bytes = max_bytes
        self._start()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Sample:
        kept = self._samples.get(index)
        if kept is not None:
            return kept
        sample = self.dataset[index]
        arrays = [array for array in (sample.image, sample.target) if array is not None]
        for array in arrays:
            array.flags.writeable = False
        self._keep(index, sample, sum(array.nbytes for array in arrays))
        return sample

    @property
    def kept_bytes(self) -> int:
        """What the kept arrays take now."""
        return self._bytes

    def _keep(self, index: int, sample: Sample, size: int) -> None:
        with self._lock:
            if index not in self._samples and self._bytes + size <= self.max_bytes:
                self._samples[index] = sample
                self._bytes += size

    def _start(self) -> None:
        self._samples: dict[int, Sample] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {"dataset": self.dataset, "max_bytes": self.max_bytes}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._start()
