"""Turns overrides into a command's checked configuration, and says in words and as JSON Schema what one may hold."""
