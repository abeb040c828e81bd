"""What scopes keep apart, whether they do, and what routing loses: from rows of requests."""
