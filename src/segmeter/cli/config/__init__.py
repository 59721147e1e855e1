"""overrides -> the checked configuration of a command; and what may stand in one, in words and as JSON Schema."""
