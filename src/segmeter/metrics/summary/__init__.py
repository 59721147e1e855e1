"""Rows -> the summary in metrics.json, under every convention, and the comparison of runs."""
