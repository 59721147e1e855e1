"""A seed -> the built-in data set of drawn cells, whose labels are exact by construction."""
