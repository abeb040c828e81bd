"""Why tokens missed: from rows of requests to the sums and words of attribute."""
