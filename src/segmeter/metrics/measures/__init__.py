"""Maps of one case -> the columns that were asked for beside its counts."""
