"""One model of a table for everything that people read: rich draws it on terminals, and it writes Markdown and HTML.

A table is made once; names in it are data, and no renderer reads them as markup.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import IO

from markupsafe import Markup, escape
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

MOST_ROWS = 10  # that a reader takes in at a glance; files have the rest
WIDTH = 80  # of plain text, columns; tables with longer names are wider
_ENDLESS = 100_000  # wider lines than the terminal's are better than numbers that are cut
_SHORTEST = 12  # of a shortened name, columns
_GAP = 2  # between two columns
_PLAIN = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n")  # as SIMPLE_HEAD, in ASCII


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells as texts.

    Parameters
    ----------
    heads, rows
        As many cells in each row as there are heads.
    names
        How many columns hold names, on the left; the others hold numbers, aligned on the right, with no text of users.
    title, note
        Lines above and below; "" for none.
    strong
        Indices of the rows that lead.
    shades
        How dark a page shows each cell, 0 to 4, or -1 for not at all; () for a table without shades.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1
    title: str = ""
    note: str = ""
    strong: Collection[int] = (0,)
    shades: Sequence[Sequence[int]] = ()

    def first(self, most: int, rest: str) -> "Table":
        """Keep the first rows, and say where the rest is; `rest` names what the rows are, in the plural."""
        left = len(self.rows) - most
        if left <= 0:
            return self
        return replace(self, rows=self.rows[:most], note=f"{left} more {rest}")

    def markdown(self) -> str:
        """Write the table in GitHub's Markdown."""
        sides = [":--" if i < self.names else "--:" for i in range(len(self.heads))]
        names = [[*map(escape_markdown, row[: self.names]), *row[self.names :]] for row in self.rows]
        lines = [f"| {' | '.join(row)} |" for row in [[*map(escape_markdown, self.heads)], sides, *names]]
        title = [f"**{escape_markdown(self.title)}**\n"] if self.title else []
        note = [f"\n{escape_markdown(self.note)}"] if self.note else []
        return "\n".join([*title, *lines, *note])

    def html(self) -> Markup:
        """Write the table as HTML without style, as notebooks show it."""
        kinds = ["text-align: left" if i < self.names else "text-align: right" for i in range(len(self.heads))]
        head = Markup().join(Markup("<th>{}</th>").format(head) for head in self.heads)
        body = Markup()
        for number, row in enumerate(self.rows):
            tag = Markup("b") if number in self.strong else Markup("span")
            pairs = zip(kinds, row, strict=True)
            cells = [Markup('<td style="{}"><{}>{}</{}></td>').format(kind, tag, cell, tag) for kind, cell in pairs]
            body += Markup("<tr>{}</tr>\n").format(Markup().join(cells))
        title = Markup("<caption>{}</caption>").format(self.title) if self.title else Markup()
        table = Markup("<table>{}<thead><tr>{}</tr></thead><tbody>\n{}</tbody></table>\n").format(title, head, body)
        return table + (Markup("<p>{}</p>\n").format(self.note) if self.note else Markup())


class Printer:
    """Prints for people: in colour on a terminal, as plain text into a file.

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
        self._box = _PLAIN if plain else box.SIMPLE_HEAD

    def table(self, table: Table) -> None:
        """Print a table: numbers are never cut, and names are wrapped or shortened where a terminal is too narrow."""
        cells = [[printable(cell) for cell in row] for row in (table.heads, *table.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        if cells[1:]:  # the words of a head may stand above one another
            words = [max(map(cell_len, head.split() or [""])) for head in cells[0]]
            columns = list(zip(*cells[1:], strict=True))
            widths = [max(word, *map(cell_len, column)) for word, column in zip(words, columns, strict=True)]
        room = self._room or _ENDLESS
        for i in sorted(range(table.names), key=lambda i: -widths[i]):
            over = sum(widths) + _GAP * (len(widths) - 1) - room
            widths[i] = max(min(widths[i], _SHORTEST), widths[i] - max(0, over))
        drawn = RichTable(box=self._box, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
        for i, (head, width) in enumerate(zip(cells[0], widths, strict=True)):
            if i < table.names:
                drawn.add_column(Text(head), overflow="ellipsis", width=width)
            else:
                drawn.add_column(Text(head), justify="right", width=width)
        for index, row in enumerate(cells[1:]):
            drawn.add_row(*(Text(cell, "bold" if index in table.strong else "") for cell in row))
        self._console.print(Text(printable(table.title), "bold") if table.title else "")
        self._console.print(drawn)
        if table.note:
            self.line(table.note)

    def line(self, text: str) -> None:
        """Print a line of small print."""
        self._console.print(Text(printable(text), style="dim"), width=self._room or WIDTH)


def printable(text: str) -> str:
    """Replace what no font shows (control characters, half surrogates) by the replacement character."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown shows it as it is, without links, mentions or HTML."""
    plain = "".join(f"\\{sign}" if sign in "\\`*_[]|~#!" else sign for sign in printable(text))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


def html_of(tables: Sequence[Table], lines: Sequence[str]) -> str:
    """Tables and the small print below them, as one HTML text."""
    return str(Markup().join(table.html() for table in tables) + Markup("<p>{}</p>").format(escape("; ".join(lines))))
