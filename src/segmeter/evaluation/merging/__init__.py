"""Finished runs on parts of the cases -> the run on all of them."""
