"""Finds the cases of a data set in folders and split lists, each image with its mask."""
