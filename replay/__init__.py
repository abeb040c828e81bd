"""Pure computation on recorded traffic. No I/O, no DuckDB, no Streamlit."""
