"""Masks -> their surfaces, the distances between them, boundary bands and centrelines."""
