"""The on-call screen: one judgement from the questions, drawn by page, terminal and dashboard."""
