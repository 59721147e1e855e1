"""arrays -> files: label maps and probabilities, whole or absent."""
