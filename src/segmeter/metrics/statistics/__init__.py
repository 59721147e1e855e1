"""Intervals, tests and rankings from values and sums of cases."""
