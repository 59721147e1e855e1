"""target, labels -> integer counts, and the overlap scores that follow from them."""
