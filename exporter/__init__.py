"""Gets facts in, keeps them, serves them."""
