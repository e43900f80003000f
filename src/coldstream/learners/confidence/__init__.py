"""How sure predictions may be: temperature, unseen classes."""
