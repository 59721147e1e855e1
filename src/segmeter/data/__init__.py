"""files -> Sample: images and masks, read exactly or refused by name. NumPy only."""
