"""One file -> arrays: told by its content, limited by its header, read exactly, with its geometry."""
