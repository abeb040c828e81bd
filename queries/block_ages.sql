/*
name: block_ages
question: How long do blocks stay, how long unused, and how far apart are their uses?
grain: one row per kind of age (and value of `by`); from a sample of blocks whose rate no page tells, so that counts are no evictions
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica], meaning: "One row more per value; one per kind if not set."}
  since: {type: TIMESTAMP, default: null, meaning: "Start of the window, inclusive; all time if not set."}
  until: {type: TIMESTAMP, default: null, meaning: "End of the window, exclusive; open if not set."}
  model: {type: VARCHAR, default: null, meaning: "Only this model; '' is \"not given\"."}
  replica: {type: VARCHAR, default: null, meaning: "Only this replica."}
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  observer: {type: VARCHAR, unit: name, meaning: "Whose blocks: engine or kv_store."}
  kind: {type: VARCHAR, unit: name, meaning: "lifetime = allocation to loss, idle = last use to loss, reuse_gap = between two uses."}
  sampled: {type: BIGINT, unit: count, meaning: "Ages behind the row."}
  mean_seconds: {type: DOUBLE, unit: seconds, meaning: "Sum / sampled."}
  p50_seconds: {type: DOUBLE, unit: seconds, meaning: "Median, interpolated within its bucket; the last finite bound where it lies beyond."}
  p95_seconds: {type: DOUBLE, unit: seconds, meaning: "95th percentile, likewise."}
*/
WITH samples AS (
    SELECT
        *,
        overlap_share(since, ts, getvariable('since'), getvariable('until')) AS share,
        CASE
            WHEN getvariable('by') IS NULL THEN NULL
            WHEN getvariable('by') = 'model' THEN coalesce(model, '')
            WHEN getvariable('by') = 'replica' THEN replica
            ELSE error('unknown dimension ' || getvariable('by'))
        END AS value
    FROM engine_samples
    WHERE
        reaches_into(since, ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
),

ages AS (
    SELECT
        value, observer, replica, model, engine, version, share, 'lifetime' AS kind,
        block_lifetime_sum_seconds AS seconds, block_lifetime_buckets AS buckets
    FROM samples WHERE block_lifetime_buckets IS NOT NULL
    UNION ALL
    SELECT
        value, observer, replica, model, engine, version, share, 'idle' AS kind,
        block_idle_sum_seconds, block_idle_buckets
    FROM samples WHERE block_idle_buckets IS NOT NULL
    UNION ALL
    SELECT
        value, observer, replica, model, engine, version, share, 'reuse_gap' AS kind,
        block_reuse_gap_sum_seconds, block_reuse_gap_buckets
    FROM samples WHERE block_reuse_gap_buckets IS NOT NULL
),

sums AS (
    SELECT value, observer, kind, sum(seconds * share) AS seconds FROM ages GROUP BY ALL
),

-- Counts are cumulative: add them up per process first, where the bounds are the same.
cumulative AS (
    SELECT
        value, observer, kind, replica, model, engine, version, bound.key AS upper,
        sum(bound.value * share) AS up_to
    FROM (SELECT *, unnest(map_entries(buckets)) AS bound FROM ages)
    GROUP BY ALL
),

counted AS (
    SELECT
        value, observer, kind, upper,
        coalesce(lag(upper) OVER bounds, 0) AS lower,
        up_to - coalesce(lag(up_to) OVER bounds, 0) AS blocks
    FROM cumulative
    WINDOW bounds AS (
        PARTITION BY value, observer, kind, replica, model, engine, version ORDER BY upper
    )
),

merged AS (
    SELECT value, observer, kind, lower, upper, sum(blocks) AS blocks FROM counted GROUP BY ALL
),

ranked AS (
    SELECT
        *,
        sum(blocks) OVER (PARTITION BY value, observer, kind ORDER BY upper, lower) AS up_to,
        sum(blocks) OVER (PARTITION BY value, observer, kind) AS all_blocks
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
    placed.value, placed.observer, placed.kind,
    known_total(blocks) AS sampled,
    any_value(seconds) / sum(blocks) AS mean_seconds,
    arg_min(at_50, up_to) FILTER (up_to >= 0.5 * all_blocks) AS p50_seconds,
    arg_min(at_95, up_to) FILTER (up_to >= 0.95 * all_blocks) AS p95_seconds
FROM placed
JOIN sums ON
    placed.value IS NOT DISTINCT FROM sums.value
    AND placed.observer = sums.observer AND placed.kind = sums.kind
GROUP BY placed.value, placed.observer, placed.kind
ORDER BY placed.value, placed.observer, placed.kind;
