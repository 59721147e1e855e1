"""maps of one case -> the columns of the requested measures."""
