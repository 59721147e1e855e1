"""cases -> the pictures of a report: what is drawn, and which cases are."""
