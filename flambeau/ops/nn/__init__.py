"""Neural-network operators, by kind."""
