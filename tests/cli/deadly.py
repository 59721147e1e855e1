"""A job that kills its process, in a module of its own, so that processes start without pytest and torch."""

import os
import signal
import time

from segmeter.cli.engines import JobOutcome
from segmeter.cli.launch import Shipped


class Deadly(Shipped):
    """A job that ends as its seed says: killed or well."""

    def __call__(self) -> JobOutcome:
        time.sleep(0.5)  # so that another job runs beside it
        if self.values["seed"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return JobOutcome(job=self.job, value=float(len(self.values["seed"])) + int(os.environ["OMP_NUM_THREADS"]))
