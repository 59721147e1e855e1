"""labels, target -> numbers: counts first, scores second. NumPy only."""
