"""The summary of a run in metrics.json, under every convention, and the comparison of runs."""
