/*
name: block_ages
question: How long do blocks stay, how long unused, how far apart are their uses, and how soon are lost ones wanted again?
grain: one row per basis, observer and kind of age (and value of `by`); a sample of blocks has a rate no page tells, so that its counts are no evictions
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica], meaning: "One row more per value; one per basis, observer and kind if not set."}
filters: [since, until, model, replica]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  basis: {type: VARCHAR, unit: name, meaning: "events = all blocks, by KV-cache events; engine sample = blocks the engine picked, by its metrics page. The two are of the same blocks: never to be added up."}
  observer: {type: VARCHAR, unit: name, meaning: "Whose blocks: engine or kv_store."}
  kind: {type: VARCHAR, unit: name, meaning: "lifetime = allocation to loss, idle = last use to loss, reuse_gap = between two uses, evicted_reuse_gap = loss to being stored again: regret (events only)."}
  sampled: {type: BIGINT, unit: count, meaning: "Ages behind the row."}
  mean_seconds: {type: DOUBLE, unit: seconds, meaning: "Sum / sampled; by events from the middle of each bucket (within 4 %)."}
  p50_seconds: {type: DOUBLE, unit: seconds, meaning: "Median, interpolated within its bucket; the last finite bound where it lies beyond."}
  p95_seconds: {type: DOUBLE, unit: seconds, meaning: "95th percentile, likewise."}
*/
WITH sums AS (
    SELECT
        cache_dimension(getvariable('by'), model, replica) AS value,
        'engine sample' AS basis, observer, kind, sum(seconds * share) AS seconds
    FROM sampled_ages(
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('replica')
    )
    GROUP BY ALL
),

merged AS (
    SELECT
        cache_dimension(getvariable('by'), model, replica) AS value,
        basis, observer, kind, lower, upper, sum(blocks) AS blocks
    FROM age_buckets(
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('replica')
    )
    GROUP BY ALL
),

ranked AS (
    SELECT
        *,
        sum(blocks) OVER (PARTITION BY value, basis, observer, kind ORDER BY upper, lower)
            AS up_to,
        sum(blocks) OVER (PARTITION BY value, basis, observer, kind) AS all_blocks
    FROM merged
),

placed AS (
    SELECT
        *,
        CASE
            WHEN isinf(upper) THEN lower
            ELSE upper - (upper - lower) * (up_to - 0.5 * all_blocks) / blocks
        END AS at_50,
        CASE
            WHEN isinf(upper) THEN lower
            ELSE upper - (upper - lower) * (up_to - 0.95 * all_blocks) / blocks
        END AS at_95
    FROM ranked
    WHERE blocks > 0
)

SELECT
    p.value, p.basis, p.observer, p.kind,
    known_total(blocks) AS sampled,
    coalesce(
        any_value(seconds),
        sum(blocks * (lower + upper) / 2) FILTER (p.basis = 'events')
    ) / sum(blocks) AS mean_seconds,
    arg_min(at_50, up_to) FILTER (up_to >= 0.5 * all_blocks) AS p50_seconds,
    arg_min(at_95, up_to) FILTER (up_to >= 0.95 * all_blocks) AS p95_seconds
FROM placed AS p
LEFT JOIN sums ON
    p.value IS NOT DISTINCT FROM sums.value AND p.basis = sums.basis
    AND p.observer = sums.observer AND p.kind = sums.kind
GROUP BY p.value, p.basis, p.observer, p.kind
ORDER BY p.value, p.basis, p.observer, p.kind;
