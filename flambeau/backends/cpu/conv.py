"""Convolutions on NumPy arrays."""
