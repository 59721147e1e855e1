"""Segmenter <-> folder: weights and manifest, verified when read; nothing in a file is run."""
