"""Defines one model of a table for everything that people read: terminals, Markdown, notebooks and pages.

The table of a result is declared once, as columns over its rows. Names in it are data, and no renderer reads them as
markup.
"""

import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from markupsafe import Markup
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

MOST_ROWS = 10  # rows that a reader takes in at a glance; files have the rest
WIDTH = 80  # of plain text, columns; tables with longer names are wider
PAGE = 9  # `spare` of columns that only pages have room for
_ENDLESS = 100_000  # wider lines than the terminal's are better than numbers that are cut
_SHORTEST = 12  # of a shortened name, columns
_USUAL = 24  # of a name; columns give way to it, and not to the rest of longer names
_GAP = 2  # between two columns
_PLAIN = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n")  # as SIMPLE_HEAD, in ASCII


class Cell(str):
    """A text with its additions on a page: the value that it is sorted by, and a link to the cases behind it."""

    value: Any
    link: str | None

    def __new__(cls, text: str, value: Any = None, link: str | None = None) -> "Cell":
        """Join the text and the rest."""
        cell = super().__new__(cls, text)
        cell.value, cell.link = text.replace(",", "") if value is None else value, link
        return cell


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    head
        The title.
    key
        Of the rows, for a value or a finished cell. ``links`` of a row has a page's links by key.
    form
        Formats a value.
    spare
        Columns with the highest number give way first where there is too little room; 0 never does.
    """

    head: str
    key: str
    form: Callable[[Any], str] = lambda value: "" if value is None else str(value)
    spare: int = 0

    def cell(self, row: Mapping[str, Any]) -> str:
        """Format the value of a row."""
        value = row[self.key]
        if isinstance(value, Cell):
            return value
        text = self.form(value)
        if isinstance(text, Markup):
            return text
        return Cell(text, "" if value is None else value, row.get("links", {}).get(self.key))


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells as texts, which may be `Cell` or, on pages only, Markup.

    Parameters
    ----------
    heads, rows
        As many cells in each row as there are heads.
    names
        How many columns hold names, on the left. The others hold numbers, aligned on the right, with no text of users.
    title, note
        Lines above and below; "" for none.
    strong
        Indices of the rows that lead.
    spares
        Of each column, as `Column.spare`; () if none gives way.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1
    title: str = ""
    note: str = ""
    strong: Collection[int] = (0,)
    spares: Sequence[int] = ()

    @classmethod
    def of(cls, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], **facts: Any) -> "Table":
        """Lay out rows under columns, without those that are empty; `facts` are further fields."""
        cells = [[column.cell(row) for column in columns] for row in rows]
        heads, spares = [each.head for each in columns], [each.spare for each in columns]
        table = cls(heads=heads, rows=cells, spares=spares, **facts)
        return table._keep([i for i in range(len(columns)) if not rows or any(row[i] for row in cells)])

    def narrow(self, least: int = PAGE) -> "Table":
        """Leave out the columns whose `spare` is at least a number."""
        if max(self.spares, default=0) < least:
            return self
        return self._keep([i for i, spare in enumerate(self.spares) if spare < least])

    def _keep(self, kept: Sequence[int]) -> "Table":
        heads, *rows = ([row[i] for i in kept] for row in (self.heads, *self.rows))
        spares = [self.spares[i] for i in kept]
        return replace(self, heads=heads, rows=rows, spares=spares, names=sum(i < self.names for i in kept))

    def first(self, most: int, rest: str) -> "Table":
        """Keep the first rows, and say where the rest is; `rest` names the rows, in the plural."""
        left = len(self.rows) - most
        if left <= 0:
            return self
        return replace(self, rows=self.rows[:most], note=f"{left} more {rest}")

    def markdown(self) -> str:
        """Write the table in GitHub's Markdown."""
        table = self.narrow()
        sides = [":--" if i < table.names else "--:" for i in range(len(table.heads))]
        names = [[*map(escape_markdown, row[: table.names]), *row[table.names :]] for row in table.rows]
        lines = [f"| {' | '.join(row)} |" for row in [[*map(escape_markdown, table.heads)], sides, *names]]
        title = [f"**{escape_markdown(table.title)}**\n"] if table.title else []
        note = [f"\n{escape_markdown(table.note)}"] if table.note else []
        return "\n".join([*title, *lines, *note])


def print_tables(tables: Iterable[Table], lines: Sequence[str] = (), *, file: IO[str] | None = None) -> None:
    """Print tables, and the small print below them: in colour on a terminal, as plain text into a file.

    Where there is too little room, spare columns give way; on a terminal, names are then wrapped or shortened. Numbers
    are never cut.

    Parameters
    ----------
    file
        Where to; None is the standard output.
    """
    probe = Console(file=file, force_jupyter=False)
    room = probe.width if probe.is_terminal else None
    options: dict[str, Any] = {"markup": False, "highlight": False, "emoji": False, "force_jupyter": False}
    console = Console(file=file, width=_ENDLESS, no_color=room is None or None, **options)

    def small(line: str) -> None:
        console.print(Text(printable(line), style="dim"), width=room or WIDTH)

    for table in map(Table.narrow, tables):
        console.print(Text(printable(table.title), "bold") if table.title else "")
        console.print(_draw(table, room))
        if table.note:
            small(table.note)
    for line in lines:
        small(line)


def _draw(table: Table, room: int | None) -> RichTable:
    """Lay out a table for a terminal of `room` columns, or for a file. The words of a head are stacked."""
    texts = [[printable(cell) for cell in row] for row in table.rows]
    heads = [max(printable(head).split() or [""], key=cell_len) for head in table.heads]
    widths = [max(map(cell_len, column)) for column in zip(heads, *texts, strict=True)]
    least = widths.copy()
    for i in range(table.names):
        words = [cell_len(word) for row in texts for word in row[i].split()]
        least[i] = min(widths[i], _USUAL, *([max(_SHORTEST, *words)] if room and words else []))
    if any(table.spares) and sum(least) + _GAP * (len(least) - 1) > (room or WIDTH):
        return _draw(table.narrow(max(table.spares)), room)
    for i in sorted(range(table.names), key=lambda i: -widths[i]):
        over = sum(widths) + _GAP * (len(widths) - 1) - (room or _ENDLESS)
        widths[i] = max(min(widths[i], _SHORTEST), widths[i] - max(0, over))
    style = _PLAIN if room is None else box.SIMPLE_HEAD
    drawn = RichTable(box=style, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    for i, (head, width) in enumerate(zip(table.heads, widths, strict=True)):
        side: Any = {"overflow": "ellipsis"} if i < table.names else {"justify": "right"}
        drawn.add_column(Text(printable(head)), width=width, **side)
    for index, row in enumerate(texts):
        drawn.add_row(*(Text(text, "bold" if index in table.strong else "") for text in row))
    return drawn


def printable(text: str) -> str:
    """Replace what no font shows (control characters, half surrogates) by the replacement character."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown shows it as it is, without links, mentions or HTML."""
    plain = "".join(f"\\{sign}" if sign in "\\`*_[]|~#!" else sign for sign in printable(text))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


def html_of(tables: Iterable[Table], lines: Sequence[str]) -> str:
    """Write tables and the small print below them as notebooks show them: as a file has them."""
    text = io.StringIO()
    print_tables(tables, lines, file=text)
    return str(Markup("<pre>{}</pre>").format(text.getvalue()))
