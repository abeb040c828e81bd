"""Layout of templates judged in the background, from the chains of rows that are still hot."""
