"""Settings of metrics: measures, conventions, gates, and the facts known of each score. No heavy import."""
