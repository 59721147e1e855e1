"""target, probs -> calibration and precision-recall curves, from sums over images."""
