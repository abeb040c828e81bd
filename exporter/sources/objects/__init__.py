"""Object stores as a source: logs under a prefix, listed, fetched and taken in."""
