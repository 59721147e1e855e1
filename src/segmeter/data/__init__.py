"""files -> Sample: images and masks, read exactly or refused by name. NumPy arrays out, and no torch."""
