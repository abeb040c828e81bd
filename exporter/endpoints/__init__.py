"""What the server answers beside its metrics and questions, one module for each address."""
