"""Finds the surfaces of masks, the distances between them, boundary bands and centrelines."""
