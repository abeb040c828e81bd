"""Rows in, Plotly figures (or words) out. Nothing here knows Streamlit or asks for data."""
