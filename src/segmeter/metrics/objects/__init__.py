"""Objects of two instance maps: how they overlap and match, and scores over them."""
