"""columns, pictures and numbers -> one HTML file: templates, style and scripts."""
