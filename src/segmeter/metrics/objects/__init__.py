"""Finds how the objects of two instance maps overlap and match, and scores them."""
