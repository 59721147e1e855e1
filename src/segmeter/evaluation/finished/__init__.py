"""Joins and compares the runs of finished evaluations, from the files in their folders."""
