"""Values per case -> intervals and tests."""
