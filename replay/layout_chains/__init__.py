"""What in a template's layout breaks reuse, told from hashes of its prompts alone."""
