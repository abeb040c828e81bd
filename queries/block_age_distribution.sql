/*
name: block_age_distribution
question: How are lifetimes of blocks distributed, their times unused, and the times until lost ones are wanted again?
grain: one row per basis, observer, kind and bucket with blocks
filters: [since, until, model, replica]
columns:
  basis: {type: VARCHAR, unit: name, meaning: "events or engine sample, as in block_ages; never to be added up."}
  observer: {type: VARCHAR, unit: name, meaning: "Whose blocks: engine or kv_store."}
  kind: {type: VARCHAR, unit: name, meaning: "lifetime, idle, reuse_gap or evicted_reuse_gap, as in block_ages."}
  from_seconds: {type: DOUBLE, unit: seconds, meaning: "Lower bound of the bucket, inclusive."}
  to_seconds: {type: DOUBLE, unit: seconds, meaning: "Upper bound, exclusive; NULL where the bucket is open."}
  blocks: {type: DOUBLE, unit: blocks, meaning: "Ages in the bucket; shares of a sample that reaches over the window's border count as shares."}
*/
SELECT
    basis, observer, kind,
    lower AS from_seconds,
    CASE WHEN NOT isinf(upper) THEN upper END AS to_seconds,
    sum(blocks) AS blocks
FROM age_buckets(
    getvariable('since'), getvariable('until'), getvariable('model'), getvariable('replica')
)
GROUP BY ALL
HAVING sum(blocks) > 0
ORDER BY basis, observer, kind, lower;
