"""Folders and split lists -> the cases of a data set, each image with its mask."""
