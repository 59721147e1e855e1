"""What the commands draw of their cases: overlays beside the results."""
