"""Calibration and precision-recall curves of probabilities, from sums over images."""
