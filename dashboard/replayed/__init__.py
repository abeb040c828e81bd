"""What a replay found, as page, command and document tell it: rows, words, charts."""
