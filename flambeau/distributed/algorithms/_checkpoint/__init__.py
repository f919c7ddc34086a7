"""Modules whose activations are computed again, or lie in memory of the host, until the backward pass needs them."""
