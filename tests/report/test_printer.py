"""Tables and lines as plain text, and on a narrow terminal."""

import io

from rich.table import Table

from segmeter.report.printer import Printer


def table_of(name):
    table = Table()
    table.add_column("name", overflow="fold")
    table.add_column("score", justify="right")
    table.add_row(name, "0.123456789")
    return table


def printed(call, monkeypatch, columns=None):
    class Terminal(io.StringIO):
        def isatty(self):
            return columns is not None

    for key in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
    file = Terminal()
    call(Printer(file))
    return file.getvalue()


def test_plain_text_keeps_long_names_whole_and_has_no_codes(monkeypatch):
    name = "x" * 300
    text = printed(lambda printer: printer.table(table_of(name)), monkeypatch)
    assert name in text
    assert "\x1b" not in text


def test_a_narrow_terminal_folds_names_and_never_figures(monkeypatch):
    text = printed(lambda printer: printer.table(table_of("x" * 60)), monkeypatch, columns=50)
    assert "0.123456789" in text
    assert "x" * 60 not in text
    assert text.count("x") == 60


def test_markup_and_control_characters_are_printed_as_text(monkeypatch):
    text = printed(lambda printer: printer.line("[red]a[/red] :smile: \x1b[31m"), monkeypatch)
    assert text.strip() == "[red]a[/red] :smile: \N{REPLACEMENT CHARACTER}[31m"
