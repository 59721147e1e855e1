"""Counts pixels in integers, and computes overlap scores from the counts."""
