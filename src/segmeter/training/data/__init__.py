"""Data set -> augmented batches, the same ones whatever the number of workers."""
