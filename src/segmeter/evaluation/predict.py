"""A checkpoint on images without reference -> label maps."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from segmeter.data.verification.intensity import ScaleWatch
from segmeter.evaluation.case_run import CaseRun, large_run, run_cases
from segmeter.evaluation.large.cases import check_streamable
from segmeter.evaluation.manifest import read_notes
from segmeter.evaluation.resuming.repair import repair_files, restore_cases
from segmeter.evaluation.resuming.restore import open_manifest

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PredictionRun(CaseRun):
    """Images without targets, and where their label maps go.

    Warns once where the images are not on the scale of those that the model was trained on.
    """


def predict(job: PredictionRun) -> int:
    """Predict every image and write its files under predictions/, and manifest.json, from which a run is resumed.

    A resumed run keeps what is done; files that are missing or not as they were written are made again, and named.

    Returns
    -------
    How many images are predicted in all.

    Raises
    ------
    DataError
        A file can't be read.
    ConfigError
        The resumed run used another configuration or other images; or something needs a whole map that is larger than
        memory.
    RunError
        A prediction is not finite, or a file can't be written.
    """
    large = large_run(job)
    check_streamable(large)
    card = job.predictor.segmenter.card
    watch = ScaleWatch(card.mean, card.std, card.clip)
    manifest = open_manifest(job.folder, job.identity, job.dataset.case_ids, resume=job.resume)
    if manifest.done:
        notes = read_notes(job.folder)
        repair_files(job, [notes[case_id]["note"] for case_id in manifest.cases])
        return len(job.dataset)
    try:
        done = sum(1 for _ in restore_cases(job, manifest))
        for case in run_cases(job, manifest, done=done, what="predicting", large=large):
            _warn(watch.add(case.prediction.sample.image))
    finally:
        manifest.close()
    _warn(watch.close())
    manifest.finish()
    return len(job.dataset)


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        _LOG.warning("%s", line)
