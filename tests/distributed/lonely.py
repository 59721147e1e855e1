"""The first of two processes, whose other one never comes: it waits in a library, where Python hears no signal."""

import sys

import torch

from segmeter.distributed.place import Place
from segmeter.distributed.ranks import find_address, joined
from segmeter.distributed.watch import watched
from segmeter.training.signals import StopSignals

if __name__ == "__main__":
    with StopSignals(raises=True):
        find_address(Place(0, 2, 0))
        with watched(Place(0, 2, 0), float(sys.argv[1])) as watch:
            sys.stdout.write("waiting\n")
            sys.stdout.flush()
            with joined(watch, torch.device("cpu")):
                pass
