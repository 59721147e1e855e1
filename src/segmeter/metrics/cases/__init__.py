"""One case -> one row of sufficient statistics, in memory and in the tables of a run."""
