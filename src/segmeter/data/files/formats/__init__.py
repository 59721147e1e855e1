"""files of other tools -> label maps with their place; each library is imported where such a file is read."""
