"""The weekly report on its own: made when a week has ended, told once, made up after downtime."""
