"""Turns a data set into augmented batches. The number of workers never changes them."""
