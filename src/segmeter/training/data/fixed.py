"""The first batches of a source -> a run on them alone, which says whether a model can learn at all."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from segmeter.classes import ClassSpec
from segmeter.data.sample import Sample
from segmeter.training.data.batches import Arrays, BatchSource, Windows


@dataclass(frozen=True, kw_only=True)
class FixedCases:
    """Samples in memory as a data set; `Cases` says what its methods are."""

    spec: ClassSpec
    samples: tuple[Sample, ...]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index]

    @property
    def case_ids(self) -> tuple[str, ...]:
        return tuple(sample.case_id for sample in self.samples)

    def contents(self) -> Mapping[str, str]:
        """Sha256 of the pixels of each sample."""
        return {sample.case_id: hashlib.sha256(_bytes_of(sample)).hexdigest() for sample in self.samples}

    def kinds(self) -> list[tuple[Any, ...]]:
        """Shape and dtype of each image."""
        return [(*sample.image.shape, str(sample.image.dtype)) for sample in self.samples]

    def fingerprint(self) -> str:
        """Sha256 over classes, and names and contents of all samples."""
        return hashlib.sha256(repr((self.spec, self.contents())).encode()).hexdigest()


class FixedBatches:
    """Gives the first batches of the first epoch, at full resolution, in every epoch again.

    Parameters
    ----------
    source
        Where they come from; asked once.
    count
        How many; an epoch has no more.
    """

    def __init__(self, source: BatchSource, count: int) -> None:
        self._batches = [Windows(*source.batch(0, index, 1.0)) for index in range(min(count, len(source)))]

    def __len__(self) -> int:
        return len(self._batches)

    def batch(self, epoch: int, index: int, progress: float) -> Arrays | Windows:
        """The batch of that place, whatever the epoch and the progress."""
        return self._batches[index]

    def cases(self, case_ids: tuple[str, ...], spec: ClassSpec) -> FixedCases:
        """The samples as cases to validate on, named after the case that each was cut from and its place.

        Parameters
        ----------
        case_ids
            Those of the cases that the source draws from.
        """
        drawn = (row for batch in self._batches for row in zip(batch.image, batch.target, batch.indices, strict=True))
        samples = [
            Sample(case_id=f"{place}-{case_ids[number % len(case_ids)]}", image=image, target=target)
            for place, (image, target, number) in enumerate(drawn, start=1)
        ]
        return FixedCases(spec=spec, samples=tuple(samples))


def _bytes_of(sample: Sample) -> bytes:
    target = b"" if sample.target is None else sample.target.tobytes()
    return repr((sample.image.shape, sample.image.dtype)).encode() + sample.image.tobytes() + target
