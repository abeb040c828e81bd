"""Traces as files: read into columns, and written without text."""
