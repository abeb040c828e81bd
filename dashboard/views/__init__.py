"""The pages. Each chooses questions and placement; it computes and draws nothing itself."""
