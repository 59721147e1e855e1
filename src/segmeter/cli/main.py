"""The door: `segmeter COMMAND key=value ...`, and what a fault looks like from outside."""

import os
import sys
import traceback
from collections.abc import Sequence

from segmeter import __version__
from segmeter.checks import nearest
from segmeter.cli.command_list import COMMANDS, PLAIN
from segmeter.errors import EXIT_BAD_INPUT, EXIT_FAULT, EXIT_INTERRUPTED, EXIT_OK, ConfigError, SegmeterError

_HELP = f"""segmeter {__version__}: train U-Nets with focal loss and measure segmentations.

usage: segmeter COMMAND [key=value ...] [--help] [--cfg job] [--multirun]

commands:
{chr(10).join(f"  {name:<9} {summary}" for name, summary in COMMANDS.items())}

segmeter COMMAND --help shows what a command takes. Tab completion: eval "$(segmeter -sc install=bash)"
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code (0, 2, 3, 130 or 143)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        _dispatch(arguments)
        sys.stdout.flush()
    except SegmeterError as error:
        _fail("\n".join(f"segmeter: {line}" for line in error.problems), error.exit_code)
    except KeyboardInterrupt:
        _fail("segmeter: interrupted.", EXIT_INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has gone; that is no fault of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_OK)
    except Exception as error:
        _fail(f"segmeter: unexpected fault: {type(error).__name__}: {error}", EXIT_FAULT)


def _fail(message: str, code: int) -> None:
    if os.environ.get("SEGMETER_DEBUG") == "1":
        traceback.print_exc()
    elif code == EXIT_FAULT:
        message += " (SEGMETER_DEBUG=1 shows the traceback)"
    sys.stderr.write(message + "\n")
    sys.exit(code)


def _dispatch(arguments: list[str]) -> None:
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        from segmeter.cli.completion import complete

        return complete(arguments[1:])
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        sys.stdout.write(_HELP)
        if not arguments:
            sys.exit(EXIT_BAD_INPUT)
        return None
    if arguments[0] in ("--version", "-V"):
        sys.stdout.write(f"segmeter {__version__}\n")
        return None
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        raise ConfigError(f"unknown command {command!r}. {nearest(command, COMMANDS)}")
    return _run(command, rest)


def _run(command: str, rest: list[str]) -> None:
    if {"--help", "-h"} & set(rest):
        from segmeter.cli.help import help_text

        sys.stdout.write(help_text(command, [word for word in rest if word not in ("--help", "-h")]))
    elif command in PLAIN:
        from importlib import import_module

        import_module(f"segmeter.cli.{command}").run(rest)
    else:
        from segmeter.cli.app import run_command

        run_command(command, rest)


if __name__ == "__main__":
    main()
