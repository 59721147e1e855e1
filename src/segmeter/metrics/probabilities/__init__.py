"""target, probs -> calibration and precision-recall, from sums that grow by image."""
