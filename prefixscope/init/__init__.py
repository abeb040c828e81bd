"""From nothing to a config: what each address and file is, and a commented file that works."""
