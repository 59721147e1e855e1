"""Tab completion: commands by ourselves, everything after them by Hydra."""

import os
import sys
from collections.abc import Sequence

from segmeter.cli.main import COMMANDS, PLAIN


def complete(arguments: Sequence[str]) -> None:
    """Answer Hydra's completion scripts (``-sc install=bash``, ``-sc query=bash``)."""
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    if any(argument.startswith("query=") for argument in arguments) and len(words) + line.endswith(" ") <= 2:
        start = words[1] if len(words) > 1 else ""
        sys.stdout.write(" ".join(name for name in COMMANDS if name.startswith(start)) + "\n")
        return
    command = words[1] if len(words) > 1 and words[1] in COMMANDS else "train"
    if len(words) > 1 and words[1] in PLAIN:
        return
    # Hydra reads the line as "app overrides": the command's own word must go.
    os.environ["COMP_LINE"] = line.replace(f" {command}", "", 1) if len(words) > 1 else line
    from segmeter.cli.app import run_command

    run_command(command, ["-sc", *arguments])
