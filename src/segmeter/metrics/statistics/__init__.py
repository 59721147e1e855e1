"""Computes intervals, tests and rankings from values and sums of cases."""
