"""Rows of sufficient statistics, one per case, in memory and in the tables of a run."""
