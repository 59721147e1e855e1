"""Makes the pictures of a report: chooses the cases, draws their layers, and flattens or crops them."""
