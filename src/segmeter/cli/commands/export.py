"""`segmeter export`: writes a checkpoint as one file that runs without segmeter."""

import sys
from collections.abc import Iterator
from functools import partial

import numpy as np

from segmeter.cli.commands._parts import open_card_images
from segmeter.cli.config.model_command_configs import DeployConfig
from segmeter.cli.config.trained_data import own_data
from segmeter.cli.folders import Job
from segmeter.cli.run_folder import open_run
from segmeter.data.dataset import Dataset
from segmeter.data.verification.splits import build_dataset
from segmeter.deploy.publish import Exported, export_model
from segmeter.errors import ConfigError, DataError
from segmeter.models.foreign.opened import find_source
from segmeter.models.trained import read_checkpoints
from segmeter.threads import share_cores


def run_export(config: DeployConfig, job: Job) -> None:
    """Export, and print how many of the file's labels equal segmeter's."""
    share_cores()
    if any(map(find_source, config.checkpoints)):
        raise ConfigError("export: writes models that segmeter trained. Export this one with the tool that trained it.")
    checkpoints = read_checkpoints(config.checkpoints)
    if config.input is not None:
        dataset = open_card_images(config.input, checkpoints.card, config.data)
    else:
        try:
            dataset = build_dataset(own_data(config.checkpoints[0], config.data), split="test")
        except (ConfigError, DataError) as error:
            advice = "The exported labels are compared with ours on real images: name some with input=FOLDER_OR_FILE."
            raise ConfigError([*error.problems, f"export: {advice}"]) from error
    with open_run(config, job, facts=checkpoints.facts()) as folder:
        exported = export_model(checkpoints, folder, images=_images(dataset, config.cases), threshold=config.threshold)
    _show(exported)


def _images(dataset: Dataset, limit: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the case ids and images of at most `limit` cases, spread evenly over the data set."""
    for index in np.unique(np.linspace(0, len(dataset) - 1, limit).round().astype(int)):
        read = partial(dataset.read_image, int(index))
        yield dataset.pairs[index].case_id, dataset.limit(index)(read)[0]


def _show(exported: Exported) -> None:
    agreement = exported.agreement
    size = "" if exported.least == 1 else f" from {exported.least} x {exported.least} pixels"
    same = 1 - agreement.differing / agreement.pixels
    sys.stdout.write(
        f"model      {exported.path} ({exported.path.stat().st_size / 1e6:.1f} MB)\n"
        f"images     (batch, height, width, channel) {exported.dtype}{size}\n"
        f"labels     {same:.4%} of {agreement.pixels} pixels of {len(agreement.cases)} images equal segmeter's"
        f"{', the others are near-ties' if agreement.differing else ''}\n"
    )
