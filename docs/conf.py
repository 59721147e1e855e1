"""Builds the site: `make docs`. Warnings are errors, and the pages need no network once they are built."""

import warnings

import segmeter

project = "segmeter"
author = "The segmeter developers"
copyright = "The segmeter developers, Apache-2.0"
release = version = segmeter.__version__
extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["_build", "gallery/*"]

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

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
