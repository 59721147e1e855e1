"""One module per command: its checked configuration -> what it does, and what it prints."""
