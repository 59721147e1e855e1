"""files larger than memory -> rows that are read when they are needed."""
