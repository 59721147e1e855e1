"""Names the commands and their flags, with the texts that help and completion show, and imports a command to run.

A command is a function `run_COMMAND`. Its module is imported only when the command runs, as most import torch, which
takes seconds.
"""

import argparse
import gc
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from segmeter.errors import ConfigError

COMMANDS = {
    "train": "train a model on images and masks",
    "eval": "measure a checkpoint; write label maps, intervals and a report",
    "predict": "write label maps for images without a reference",
    "score": "measure masks of any tool against references, without a model",
    "compare": "paired statistics between evaluations of the same cases",
    "plan": "how many cases a score or a comparison needs, from a pilot",
    "tune": "choose threshold and post-processing on the validation split",
    "merge": "join the shards of a run, or the folds of a cross-validation",
    "agree": "measure how far readers or models agree, and who stands apart",
    "suspects": "rank labels that are likely wrong, or images to label next",
    "check": "verify a data set before training, and list every bad file",
    "export": "write a checkpoint as one ONNX file, and compare its labels",
    "report": "rebuild the HTML report of a run, or index all runs of a folder",
    "schema": "the JSON Schema of a command or a configuration group, for editors",
    "doctor": "show versions and devices, and check this installation",
    "demo": "train, evaluate and predict on built-in data in a few minutes",
}
PLAIN = ("report", "schema", "doctor", "demo")  # commands without a configuration of their own
_SHARED = {  # the module of each command that shares one with others
    "predict": "eval",
    **dict.fromkeys(("compare", "merge", "report"), "finished"),
    **dict.fromkeys(("plan", "agree", "suspects"), "decide"),
}

USAGE = {
    "train": "segmeter train data=camvid data.root=PATH loss.gamma=2 training.epochs=80",
    "eval": "segmeter eval checkpoint=RUN data.root=PATH data.split=test",
    "predict": "segmeter predict checkpoint=RUN input=FOLDER_OR_FILE",
    "score": "segmeter score predictions=FOLDER references=FOLDER 'data.classes=[bg,cell]'",
    "compare": "segmeter compare 'runs=[A,B]'",
    "plan": "segmeter plan run=RUN width=0.05, or 'runs=[A,B]' detect=0.01, or mean=0.78 sd=0.12 width=0.05",
    "tune": "segmeter tune checkpoint=RUN 'over=[threshold=0.3:0.7:0.05]'",
    "merge": "segmeter merge 'runs=[SHARD,SHARD]'",
    "agree": "segmeter agree 'folders=[A,B,C]' 'data.classes=[background,cell]'",
    "suspects": "segmeter suspects 'runs=[EVAL,EVAL]' (runs of eval with export.probs=true)",
    "check": "segmeter check data=camvid data.root=PATH",
    "export": "segmeter export checkpoint=RUN format=onnx",
    "report": "segmeter report run=RUN, or runs=ROOT",
    "schema": "segmeter schema train",
    "doctor": "segmeter doctor",
    "demo": "segmeter demo [folder]",
}

FLAGS = {
    "--help [GROUP]": "show what the command takes; with a group, every key of it",
    "--cfg job": "show the composed configuration, with the meaning of each key, instead of running",
    "--cfg job -p KEY": "show one part of it",
    "--resolve": "with --cfg: replace each ${...} with its value",
    "--multirun, -m": "run every combination: loss.gamma=0,1,2",
    "--config-dir DIR": "add your own folder of YAML files, such as DIR/augment/mine.yaml for augment=mine",
    "--config-name NAME": "start from another root file, such as DIR/NAME.yaml",
}


def read_arguments(command: str, argv: Sequence[str]) -> argparse.Namespace:
    """Read the flags and overrides of a command.

    Raises
    ------
    ConfigError
        A flag is unknown or not allowed.
    """
    parser = _Parser(prog=f"segmeter {command}", add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--cfg", "-c", choices=["job"])
    parser.add_argument("--package", "-p")
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--resolve", action="store_true")
    return parser.parse_intermixed_args(list(argv))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}. See: {self.prog} --help.")


def load_command(name: str) -> Callable[..., float | None]:
    """Import the module of a command, and return the function that runs it.

    This also switches the garbage collector on again. `main` switches it off while modules are imported.
    """
    module = import_module(f"segmeter.cli.commands.{_SHARED.get(name, name)}")
    gc.enable()
    run: Callable[..., float | None] = getattr(module, f"run_{name}")
    return run
