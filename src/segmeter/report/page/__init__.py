"""Fills the HTML pages: templates, style, scripts, and the values in them."""
