"""Batches -> updates of the weights: step, optimizer, schedule, averaged weights."""
