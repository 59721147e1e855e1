"""Runs models that others trained. A card supplies what our own checkpoints record about themselves."""
