"""Settings of metrics: measures, conventions, gates, and facts about each score. Imports nothing heavy."""
