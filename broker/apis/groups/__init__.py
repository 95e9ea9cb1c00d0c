"""Groups of both protocols and their offsets."""
