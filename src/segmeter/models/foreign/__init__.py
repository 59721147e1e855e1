"""Models that others trained, behind a card that tells what our own checkpoints know of themselves."""
