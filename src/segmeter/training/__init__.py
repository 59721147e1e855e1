"""model and batches -> checkpoint."""
