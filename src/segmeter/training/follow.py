"""A training job in any process but the first -> the same steps, on its own part of each batch."""

from contextlib import ExitStack

import torch

from segmeter.inference.precision import pick_dtype, without_tf32
from segmeter.training.data.batches import Batches
from segmeter.training.job import TrainJob, check_job, open_batches
from segmeter.training.learner import Learner
from segmeter.training.limits import Limits
from segmeter.training.run.determinism import kernels, seed_everything
from segmeter.training.run.signals import StopSignals
from segmeter.training.validator import score_share


def follow(job: TrainJob) -> None:
    """Take every step, and a share of every validation, that rank 0 announces, until it announces the end.

    Nothing is decided or written here. A signal that reaches this process is passed on to rank 0, which saves and ends
    the run for all.

    Parameters
    ----------
    job
        That of rank 0, with this process's part of the batches; its folder is not used.
    """
    device = check_job(job)
    limits, told = Limits(config=job.training, batches_per_epoch=len(job.source)), 0.0

    def progress(step: int) -> float:
        return max(told, limits.progress(step, 0.0))

    with ExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        stack.enter_context(kernels(job.training.deterministic))
        if pick_dtype(device, job.training.precision) is torch.float32:
            stack.enter_context(without_tf32())
        seed_everything(job.training.seed)
        learner = Learner(job, device, limits)
        stack.push(job.world.end)
        learner.share()
        batches: Batches | None = None
        while (order := job.world.next_order(stop.number)) is not None:
            told = order.progress
            if order.validates:
                job.world.gather(score_share(job, learner, stop=stop))
                continue
            if batches is None:
                batches = stack.enter_context(open_batches(job, device, step=order.step, progress=progress))
            learner.update([batches.take() for _ in range(job.training.accumulate)], step=order.step, progress=told)
