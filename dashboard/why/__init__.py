"""The tabs of the page Why, and the columns of their tables."""
