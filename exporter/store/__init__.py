"""The DuckDB file: schema, append, roll up, count, retain."""
