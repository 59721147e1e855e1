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

MOST_ROWS = 10  # A reader takes in this many rows at a glance. Files have the rest.
WIDTH = 80  # Plain text has this many columns. Tables with longer names are wider.
PAGE = 9  # The `spare` of columns that only pages have room for.
_ENDLESS = 100_000  # Lines that are wider than the terminal are better than cut numbers.
_SHORTEST = 12  # A name is never shortened to fewer characters.
_USUAL = 24  # Columns give way to this many characters of a name, but not to the rest of a longer one.
_GAP = 2  # Spaces between two columns.
_PLAIN = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n")  # Rich's SIMPLE_HEAD in ASCII.


class Cell(str):
    """A text with what a page adds to it: the value to sort by, and a link to the cases behind it."""

    value: Any
    link: str | None

    def __new__(cls, text: str, value: Any = None, link: str | None = None) -> "Cell":
        """Make a text with a value, by default the text without commas, and a link."""
        cell = super().__new__(cls, text)
        cell.value = text.replace(",", "") if value is None else value
        cell.link = link
        return cell


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    head
        The title.
    key
        The key of a value, or of a finished cell, in each row. The ``links`` of a row are a page's links by key.
    form
        Formats a value.
    spare
        Where there is too little room, columns with the highest number give way first. A column with 0 never does.
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
        Each row has as many cells as there are heads.
    names
        How many columns on the left hold names. The others hold numbers, aligned on the right, and no users' texts.
    title, note
        Lines above and below; "" for none.
    strong
        Indices of the rows that lead.
    spares
        The `Column.spare` of each column; () if none gives way.
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
        """Lay out rows under columns, without the empty columns; `facts` are further fields."""
        cells = [[column.cell(row) for column in columns] for row in rows]
        heads = [column.head for column in columns]
        spares = [column.spare for column in columns]
        table = cls(heads=heads, rows=cells, spares=spares, **facts)
        return table._keep([i for i in range(len(columns)) if not rows or any(row[i] for row in cells)])

    def narrow(self, least: int = PAGE) -> "Table":
        """Leave out the columns whose `spare` is at least a number."""
        if max(self.spares, default=0) < least:
            return self
        return self._keep([i for i, spare in enumerate(self.spares) if spare < least])

    def _keep(self, columns: Sequence[int]) -> "Table":
        heads, *rows = ([row[i] for i in columns] for row in (self.heads, *self.rows))
        spares = [self.spares[i] for i in columns]
        return replace(self, heads=heads, rows=rows, spares=spares, names=sum(i < self.names for i in columns))

    def first(self, most: int, rest: str) -> "Table":
        """Keep the first rows. A note counts the others and ends with `rest`, which says where they are."""
        more = len(self.rows) - most
        if more <= 0:
            return self
        return replace(self, rows=self.rows[:most], note=f"{more} more {rest}")

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
    """Print tables and the small print below them: in colour on a terminal, as plain text into a file.

    Where there is too little room, spare columns give way. On a terminal, names are then wrapped or shortened. Numbers
    are never cut.

    Parameters
    ----------
    file
        Where to write; None is the standard output.
    """
    probe = Console(file=file, force_jupyter=False)
    room = probe.width if probe.is_terminal else None
    console = Console(
        file=file,
        width=_ENDLESS,
        no_color=room is None or None,
        markup=False,
        highlight=False,
        emoji=False,
        force_jupyter=False,
    )

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
    rich_table = RichTable(box=style, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    for i, (head, width) in enumerate(zip(table.heads, widths, strict=True)):
        alignment: Any = {"overflow": "ellipsis"} if i < table.names else {"justify": "right"}
        rich_table.add_column(Text(printable(head)), width=width, **alignment)
    for index, row in enumerate(texts):
        rich_table.add_row(*(Text(text, "bold" if index in table.strong else "") for text in row))
    return rich_table


def printable(text: str) -> str:
    """Replace characters that no font shows, such as control characters and half surrogates."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown shows it as it is, without links, mentions or HTML."""
    plain = "".join(f"\\{sign}" if sign in "\\`*_[]|~#!" else sign for sign in printable(text))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


def html_of(tables: Iterable[Table], lines: Sequence[str]) -> str:
    """Write tables and the small print below them for notebooks, which show the same text as a file has."""
    file = io.StringIO()
    print_tables(tables, lines, file=file)
    return str(Markup("<pre>{}</pre>").format(file.getvalue()))
