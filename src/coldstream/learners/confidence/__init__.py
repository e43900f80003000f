"""How confident predictions may be: temperature, unseen classes, near-duplicates."""
