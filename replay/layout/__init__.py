"""What in a prompt's layout keeps it from being reused: found, and proved by replay.

Works on the text of prompts, in memory only: nothing here reads or writes anything.
"""
