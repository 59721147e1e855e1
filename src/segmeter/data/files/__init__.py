"""Reads image files exactly: format by content, size by header, then pixels and geometry."""
