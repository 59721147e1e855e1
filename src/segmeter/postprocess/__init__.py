"""labels -> cleaned labels, each step saying how many pixels it changed. NumPy and scikit-image."""
