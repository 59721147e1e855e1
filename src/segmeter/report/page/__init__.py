"""The HTML pages: templates, style, scripts, and the values that fill them."""
