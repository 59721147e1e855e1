"""Two small label PNGs -> the counts of their pairs of pixels: most files that are scored, by the shortest way."""
