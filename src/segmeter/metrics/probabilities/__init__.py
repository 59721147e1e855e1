"""Measures the calibration and precision-recall curves of probabilities, from sums over images."""
