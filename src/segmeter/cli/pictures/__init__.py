"""Cases as they are measured, scored or merged -> the overlays of a run."""
