"""Where facts come from: engines, log formats, and the ways they arrive."""
