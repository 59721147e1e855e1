"""Measures of a case beside its counts."""
