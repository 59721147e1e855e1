"""Two zlib streams at once: what the noisy label maps of a case take, where almost every byte is a literal."""

ROOM = 64  # bytes behind a stream, and behind what it is inflated to, that may be read or overwritten
