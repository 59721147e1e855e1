"""The entry point of `segmeter COMMAND key=value ...`, which turns every error into lines and an exit code."""

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from segmeter import __version__
from segmeter.checks import nearest
from segmeter.cli.commands import COMMANDS, load_command
from segmeter.cli.messages import describe, lenient_streams, shown_warnings
from segmeter.errors import (
    EXIT_BAD_INPUT,
    EXIT_INTERRUPTED,
    ConfigError,
    Interrupted,
    LateError,
    PeerError,
    Stopped,
    StopSignals,
)

_HELP = f"""segmeter {__version__}: train U-Nets with focal loss and measure segmentations.

usage: segmeter COMMAND [key=value ...] [--help] [--cfg job] [--multirun]

commands:
{chr(10).join(f"  {name:<9} {summary}" for name, summary in COMMANDS.items())}

segmeter COMMAND --help shows what a command takes.
Tab completion: eval "$(segmeter -sc install=bash)"
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code (0, 2, 3, 4, 5, 129, 130 or 143)."""
    # While modules are imported, the garbage collector would take a tenth of a second. `load_command` switches it on.
    gc.disable()
    with lenient_streams(), shown_warnings(), StopSignals(raises=True) as stop:
        try:
            _dispatch([*(sys.argv[1:] if argv is None else argv)])
            return
        except SystemExit as leaving:
            raise SystemExit(leaving.code) from None
        except KeyboardInterrupt as error:
            _fail(f"segmeter: {str(error) or 'interrupted'}.", getattr(error, "exit_code", EXIT_INTERRUPTED))
        except Exception as error:
            received = stop.received if stop.raises else None  # otherwise the signal came after the error
            if received and not isinstance(error, Interrupted):  # for example, the same signal killed a worker
                _fail(f"segmeter: {Stopped(received)}.", stop.exit_code)
            lines, code = describe(error)
            _fail("\n".join(f"segmeter: {line}" for line in lines), code, at_once=_is_late(error))
        finally:
            gc.enable()


def _is_late(error: BaseException | None) -> bool:
    """Tell whether a thread may still be reading or waiting for other processes. Python would wait for it at exit."""
    return error is not None and (isinstance(error, LateError | PeerError) or _is_late(error.__cause__))


def _fail(message: str, code: int, *, at_once: bool = False) -> NoReturn:
    if os.environ.get("SEGMETER_DEBUG") == "1":
        traceback.print_exc()
    sys.stderr.write(message + "\n")
    if at_once:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
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
    command, *rest = arguments
    if command not in COMMANDS:
        raise ConfigError(f"unknown command {command!r}. {nearest(command, COMMANDS)}")
    if {"--help", "-h"} & set(rest):
        from segmeter.cli.help import help_text

        sys.stdout.write(help_text(command, [word for word in rest if word not in ("--help", "-h")]))
    elif command in ("report", "doctor"):
        load_command(command)(rest)
    elif command == "demo":
        from segmeter.cli.app import run_demo

        run_demo(rest)
    elif command == "schema":
        from segmeter.cli.app import print_schema

        print_schema(rest)
    else:
        from segmeter.cli.app import run_command

        run_command(command, rest)
    return None


if __name__ == "__main__":
    main()
