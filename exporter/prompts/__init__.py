"""Prompts in rows become names as they arrive: read, rendered, tokenized, hashed, forgotten.

Nothing here keeps or repeats what a prompt says: not on disk, not in logs, not in errors.
"""
