"""Builds the site: `make docs`. Warnings are errors, and the pages need no network once they are built."""

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # Sphinx runs this file from elsewhere
import metric_pages
import pitfalls
import reference_page

import segmeter

project = "segmeter"
author = "The segmeter developers"
copyright = "The segmeter developers, Apache-2.0"
release = version = segmeter.__version__
extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["_build", "gallery/*"]

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
myst_disable_syntax = ["myst_line_comment"]  # a line may begin with "% of the cases"

autosummary_generate = True
numpydoc_show_class_members = False
autodoc_typehints = "none"  # numpydoc's sections say them

html_theme = "pydata_sphinx_theme"
html_title = f"segmeter {release}"
html_theme_options = {
    "navigation_with_keys": False,
    "show_nav_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_show_sourcelink = False
html_static_path = ["site"]
html_css_files = ["site.css"]

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "decisions",
    "filename_pattern": r"/plot_",
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 10_000,
    "abort_on_example_error": True,
}
warnings.filterwarnings("error", module=r"plot_.*")


def insert_generated(app: object, name: str, source: list[str]) -> None:
    """List every key of the configuration on its page, from the schemas, and lead from each metric to its page."""
    if name == "configuration":
        source[0] = source[0].partition(reference_page.MARK)[0] + reference_page.reference()
    if name == "metric-list":
        source[0] = metric_pages.link_pages(source[0])


def write_metric_pages(app: object) -> None:
    """Write a page for each metric, with pictures of its pitfalls."""
    docs = Path(app.srcdir)
    shutil.rmtree(docs / metric_pages.FOLDER, ignore_errors=True)
    (docs / metric_pages.FOLDER).mkdir()
    for path, page in metric_pages.read_pages().items():
        pictures = pitfalls.show_pitfalls(page.names, docs / metric_pages.FOLDER)
        (docs / f"{path}.md").write_text(metric_pages.write_page(page, pictures), encoding="utf-8")


def write_live_report(app: object, error: Exception | None) -> None:
    """Put a report beside the finished pages, for demo.md to show."""
    if error is None:
        script, folder = Path(__file__).with_name("live_report.py"), Path(app.outdir) / "live"
        subprocess.run([sys.executable, str(script), str(folder)], check=True, stdout=subprocess.DEVNULL)


def setup(app: object) -> None:
    """Let Sphinx call the three above."""
    app.connect("builder-inited", write_metric_pages)
    app.connect("source-read", insert_generated)
    app.connect("build-finished", write_live_report)
