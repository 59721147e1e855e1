"""Measures of a case in addition to its counts."""
