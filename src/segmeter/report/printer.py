"""Tables and lines -> the terminal, or plain text: names stay whole where there is room, and numbers always."""

from typing import IO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

WIDTH = 110  # of plain text, columns; tables with longer names are wider
_ENDLESS = 100_000  # wider lines than the terminal's are better than numbers that are cut
_SHORTEST = 12  # that a name is folded to
_EDGE = 3  # columns that a table's lines take between two of its columns


class Printer:
    """Prints for people: in colour on a terminal, as plain text into a file. Names are never read as markup.

    Parameters
    ----------
    file
        Where to; None is the standard output.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        probe = Console(file=file)
        self._room = probe.width if probe.is_terminal else None
        plain = True if self._room is None else None
        self._console = Console(file=file, markup=False, highlight=False, emoji=False, width=_ENDLESS, no_color=plain)
        self.lines = box.ASCII2 if plain else box.SIMPLE_HEAD

    def table(self, table: Table) -> None:
        """Print a table.

        Right-aligned columns hold numbers, which are never cut or folded; others hold names, which are folded where the
        terminal is too narrow for them; one with a `ratio` holds text, which takes the room that is left.
        """
        widths = [_width(column) for column in table.columns]
        needed = sum(40 if column.ratio else width for column, width in zip(table.columns, widths, strict=True))
        needed += _EDGE * (len(widths) + 1)
        names = [column for column in table.columns if column.justify != "right" and not column.ratio]
        short = 0 if self._room is None else max(0, needed - self._room)
        for column in table.columns:
            column.no_wrap = not column.ratio and not (short and column in names)
        for column in names if short else ():
            column.max_width = max(_SHORTEST, _width(column) - -(-short // len(names)))
        self._console.print(table, width=max(needed, WIDTH if self._room is None else self._room))

    def line(self, text: str) -> None:
        """Print a line of small print."""
        self._console.print(Text(printable(text), style="dim"), width=self._room or WIDTH)


def _width(column: Column) -> int:
    cells = [column.header, *column.cells]
    return max(cell_len(cell.plain if isinstance(cell, Text) else str(cell)) for cell in cells)


def printable(text: str) -> str:
    """Replace what no font shows (control characters, half surrogates) by the replacement character."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
