"""Summarises a run as metrics.json, under every convention, and compares runs."""
