"""One table on terminals, in files, in Markdown and in HTML."""

import io
import re
from dataclasses import replace

import pytest

from segmeter.report.tables import PAGE, Cell, Column, Table, html_of, print_tables

NAMED = Table(heads=["name", "best score"], rows=[["a long name of a class", "0.123456789"], ["x" * 30, "1"]])


@pytest.fixture
def printed(monkeypatch):
    """Prints into a file, or on a terminal of some columns."""

    def show(*given, columns=None):
        for key in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
            monkeypatch.delenv(key, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns or 80))
        file = io.StringIO()
        file.isatty = lambda: columns is not None
        print_tables(*given, file=file)
        return file.getvalue()

    return show


def test_plain_text_keeps_long_names_whole_and_has_no_codes(printed):
    name = "x" * 300
    text = printed([Table(heads=["name", "score"], rows=[[name, "1"]])])
    assert name in text
    assert "\x1b" not in text
    assert text.isascii()


def test_names_are_on_the_left_and_numbers_on_the_right_of_their_columns(printed):
    assert printed([Table(heads=["name", "score"], rows=[["x", "1"]])]) == "\nname  score\n-----------\nx         1\n"


def test_a_narrow_terminal_wraps_names_between_words_and_cuts_no_number(printed):
    text = printed([NAMED], columns=36)
    assert all(word in text for word in ["a", "long", "name", "of", "class", "0.123456789", "best", "score"])
    assert "x" * 30 not in text
    assert "…" in text


PAGED = Table.of(
    [Column("a name", "name"), Column("always", "value"), Column("only on pages", "value", str, spare=PAGE)],
    [{"name": "x", "value": 0.25, "links": {"name": "#x"}}],
)


def test_columns_of_pages_are_neither_printed_nor_in_markdown_and_their_cells_have_value_and_link(printed):
    assert "always" in printed([PAGED])
    assert "pages" not in PAGED.markdown() + html_of([PAGED], []) + printed([PAGED])
    assert PAGED.heads == ["a name", "always", "only on pages"]
    name, first, *_ = PAGED.rows[0]
    assert (name, name.link, first.value, first.link) == ("x", "#x", 0.25, None)
    assert Cell("1,234").value == "1234"


SPARE = Table.of(
    [
        Column("a name", "name"),
        Column("first to go", "value", "{:.20f}".format, 2),
        Column("next", "value", "{:.20f}".format, 1),
        Column("always", "value", "{:.20f}".format),
    ],
    [{"name": "x", "value": 0.25}],
)


@pytest.mark.parametrize(("columns", "heads"), [(100, "first next always"), (66, "next always"), (40, "always")])
def test_spare_columns_give_way_where_a_terminal_is_too_narrow(printed, columns, heads):
    text = printed([SPARE], columns=columns)
    assert max(map(len, re.sub(r"\x1b\[\d+m", "", text).splitlines())) <= columns
    assert [word for word in ("first", "next", "always") if word in text] == heads.split()
    assert "first" not in printed([replace(SPARE, rows=[["x" * 24, *SPARE.rows[0][1:]]])])


def test_a_name_is_wrapped_before_a_column_gives_way(printed):
    columns = [Column("a name", "name"), Column("value", "value", "{:.30f}".format, 1), Column("always", "value")]
    words = Table.of(columns, [{"name": "three words here", "value": 0.25}])
    assert ["value" in printed([words], columns=room) for room in (54, 53)] == [True, False]


def test_a_column_without_a_cell_is_left_out():
    columns = [Column("name", "name"), Column("none", "none", spare=PAGE), Column("by", "by"), Column("n", "n")]
    table = Table.of(columns, [{"name": "x", "none": None, "by": "", "n": 0}], names=3)
    assert (table.heads, table.names, table.spares, [*table.rows[0]]) == (["name", "n"], 1, [0, 0], ["x", "0"])
    assert Table.of(columns, []).heads == ["name", "none", "by", "n"]


def test_markup_and_control_characters_are_printed_as_text(printed):
    name = "[red]a[/red] :smile: \x1b[31m"
    table = Table(heads=[name, name], rows=[[name, name]], title=name, note=name)
    for given in ([[], [name]], [[table]]):
        text = " ".join(printed(*given).split())
        assert "[red]a[/red] :smile: \N{REPLACEMENT CHARACTER}[31m" in text
        assert "\x1b" not in text


def test_markdown_and_html_escape_what_was_given():
    table = Table(heads=["<b>", "n"], rows=[["a|b", "1"]], title="@all", note="2 more")
    assert table.markdown() == "**&#64;all**\n\n| &lt;b&gt; | n |\n| :-- | --: |\n| a\\|b | 1 |\n\n2 more"
    assert html_of([table], ["a < b"]).startswith("<pre>@all\n&lt;b&gt;")
    assert html_of([table], ["a < b"]).endswith("a &lt; b\n</pre>")


def test_only_the_first_rows_are_kept_and_the_rest_is_counted():
    table = Table(heads=["a"], rows=[[str(i)] for i in range(12)])
    assert table.first(12, "rows.") is table
    short = table.first(10, "rows are elsewhere.")
    assert (len(short.rows), short.note) == (10, "2 more rows are elsewhere.")
