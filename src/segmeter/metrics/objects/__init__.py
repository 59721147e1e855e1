"""Instance maps -> matched objects and scores over the matches."""
