"""rows of cases -> the compact columns that a page shows."""
