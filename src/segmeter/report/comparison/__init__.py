"""compare.json -> the tables on the terminal, and the summary for a pull request."""
