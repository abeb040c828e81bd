"""Is everything wired? Facts are gathered first; small pure functions turn them into findings."""
