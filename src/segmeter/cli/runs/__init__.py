"""A run's folder: who owns it, what it records, and which one is resumed."""
