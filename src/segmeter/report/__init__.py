"""numbers -> tables, pictures and one HTML file."""
