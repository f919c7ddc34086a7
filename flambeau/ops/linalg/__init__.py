"""Products, norms, factorizations and what is made of them."""
