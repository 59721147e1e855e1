"""An interrupted or damaged run of eval or predict -> what of it stays, and what is predicted again."""
