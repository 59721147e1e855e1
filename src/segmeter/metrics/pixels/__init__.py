"""Integer counts of pixels, and the overlap scores that follow from them."""
