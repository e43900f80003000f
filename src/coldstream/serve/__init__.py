"""The live service: people label images, and a network learns from every label."""
