"""The parts of the page What if: the traffic, what is asked of it, and what came out."""
