"""Reads a page of a report as a browser would."""

from html.parser import HTMLParser

VOID = {"meta", "img", "input", "br"}


class Page(HTMLParser):
    """Tags with their attributes, the text of each, rows of tables as texts, and whether the nesting is right."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.rows, self.open = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.rows[-1][-1] = self.rows[-1][-1].strip()

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, tag):
        return [data.strip() for name, data in self.texts if name == tag and data.strip()]
