"""Verifies the files of a data set once, measures their values, and remembers them for the next start."""
