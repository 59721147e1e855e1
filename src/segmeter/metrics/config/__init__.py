"""What may be measured, with which settings and under which convention; no heavy import."""
