"""Reads masks: stored values, drawn objects and annotation files become labels or object numbers."""
