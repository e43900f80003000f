"""The machine-learning backend of Label Studio."""
