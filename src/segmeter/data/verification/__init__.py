"""Dataset -> DataReport: every file verified once, its values measured, and remembered for the next start."""
