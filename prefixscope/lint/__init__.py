"""`lint`: prompts with their text in, layout findings out. The text stays in memory."""
