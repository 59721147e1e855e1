"""The drivers: a model on data, files on files, runs on runs -> a run folder."""
