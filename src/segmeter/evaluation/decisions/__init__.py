"""Answers questions that need more than one run's metrics: who agrees with whom, and which labels are wrong."""
