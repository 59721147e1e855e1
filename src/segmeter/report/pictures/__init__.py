"""The pictures of a report: the cases that get one, their layers, and what becomes of the layers."""
