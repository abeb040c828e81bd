/*
name: offload
question: How much KV was written to lower tiers and brought back, and at what speed?
grain: one row per direction and tier (and value of `by`) that some page counts
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica, engine], meaning: "One row more per value; one per direction and tier if not set."}
filters: [since, until, model, replica]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  observer: {type: VARCHAR, unit: name, meaning: "Who counted: engine or kv_store. The two count the same bytes, each on its side."}
  direction: {type: VARCHAR, unit: name, meaning: "store = written to the tier, load = brought back from it."}
  tier: {type: VARCHAR, unit: name, meaning: "The lower tier: host, disk or remote."}
  tokens: {type: BIGINT, unit: tokens, meaning: "Tokens moved; NULL where no page counts them."}
  bytes: {type: BIGINT, unit: bytes, meaning: "Bytes moved, all ranks; NULL where no page counts them."}
  seconds: {type: DOUBLE, unit: seconds, meaning: "Time the transfers took, summed over transfers side by side."}
  bytes_per_second: {type: DOUBLE, unit: bytes per second, meaning: "bytes / seconds: speed of one transfer; NULL without both."}
*/
WITH samples AS (
    SELECT
        *,
        overlap_share(since, ts, getvariable('since'), getvariable('until')) AS share,
        CASE
            WHEN getvariable('by') IS NULL THEN NULL
            WHEN getvariable('by') = 'model' THEN coalesce(model, '')
            WHEN getvariable('by') = 'replica' THEN replica
            WHEN getvariable('by') = 'engine' THEN engine
            ELSE error('unknown dimension ' || getvariable('by'))
        END AS value
    FROM engine_samples
    WHERE
        reaches_into(since, ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
),

moved AS (
    SELECT value, observer, share, 'tokens' AS unit, unnest(map_entries(offload_tokens)) AS entry
    FROM samples WHERE offload_tokens IS NOT NULL
    UNION ALL
    SELECT value, observer, share, 'bytes' AS unit, unnest(map_entries(offload_bytes)) AS entry
    FROM samples WHERE offload_bytes IS NOT NULL
    UNION ALL
    SELECT value, observer, share, 'seconds' AS unit, unnest(map_entries(offload_seconds)) AS entry
    FROM samples WHERE offload_seconds IS NOT NULL
),

sums AS (
    SELECT
        value, observer,
        split_part(entry.key, '/', 1) AS direction,
        split_part(entry.key, '/', 2) AS tier,
        sum(entry.value * share) FILTER (unit = 'tokens') AS tokens,
        sum(entry.value * share) FILTER (unit = 'bytes') AS bytes,
        sum(entry.value * share) FILTER (unit = 'seconds') AS seconds
    FROM moved
    GROUP BY ALL
)

SELECT
    value, observer, direction, tier,
    round(tokens)::BIGINT AS tokens,
    round(bytes)::BIGINT AS bytes,
    seconds,
    ratio(bytes, seconds) AS bytes_per_second
FROM sums
ORDER BY value, observer, direction, tier;
