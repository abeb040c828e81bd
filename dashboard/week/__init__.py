"""The page Week: the weekly report on the screen, part by part."""
