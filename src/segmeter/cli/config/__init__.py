"""Turns overrides into a command's checked configuration, and describes its keys in help and as JSON Schema."""
