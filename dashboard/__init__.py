"""The Streamlit dashboard: pages ask questions, figures draw rows."""
