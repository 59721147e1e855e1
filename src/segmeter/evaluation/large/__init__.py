"""cases and pairs that are larger than memory -> files and counts, some rows at a time."""
