"""The tables of docs/why-tools-differ.md are what their scripts print."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_page_shows_what_the_script_prints_for_camvid(shared_data):
    script = load("camvid_conventions")
    page = (DOCS / "why-tools-differ.md").read_text().splitlines()
    for line in script.table(script.compare(shared_data / "camvid")):
        assert line in page


def test_the_drawing_says_what_the_script_counts(tmp_path):
    load("draw_surfaces").draw(tmp_path / "surfaces.svg")
    for path in (tmp_path, DOCS):  # the bytes depend on matplotlib's version
        text = (path / "surfaces.svg").read_text()
        assert "14 pixels, each counts once" in text
        assert "28 elements, 22.1 px long together" in text
