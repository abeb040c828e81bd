"""Every figure, defined once: one .sql file per question, and the registry that runs them."""
