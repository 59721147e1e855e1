"""Turns a command line into a run. This is the only place that knows Hydra, and it puts every part together."""
