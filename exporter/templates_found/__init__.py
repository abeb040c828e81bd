"""Templates that nobody named: found in chains, named stably, and put into rows that give none."""
