"""command line -> run: the only place that knows Hydra, and where every part is put together."""
