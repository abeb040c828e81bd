/*
name: tier_memory
question: How much KV do lower tiers hold, and for how much have they room?
grain: one row per lower tier (and value of `by`) that some page tells of; the latest sample of each replica in the window
params:
  by: {type: VARCHAR, default: null, one_of: [replica, model], meaning: "One row more per value; one per tier if not set."}
filters: [since, until, model, replica]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  observer: {type: VARCHAR, unit: name, meaning: "Who tells: engine (of a tier of its own) or kv_store (of what all engines share)."}
  tier: {type: VARCHAR, unit: name, meaning: "The lower tier: host, disk or remote."}
  capacity_tokens: {type: BIGINT, unit: tokens, meaning: "KV tokens it has room for: as told, else blocks x block size, else bytes / bytes per token of the model; NULL where none is known."}
  used_tokens: {type: BIGINT, unit: tokens, meaning: "KV tokens it holds, likewise."}
  capacity_bytes: {type: BIGINT, unit: bytes, meaning: "Bytes it has room for, as told; NULL where not."}
  used_bytes: {type: BIGINT, unit: bytes, meaning: "Bytes it holds, as told; NULL where not."}
  replicas: {type: BIGINT, unit: count, meaning: "Replicas, or stores, behind the row."}
  as_of: {type: TIMESTAMP, unit: time, meaning: "Latest of their samples."}
*/
WITH latest AS (
    SELECT
        replica, observer,
        coalesce(arg_max_null(model, ts), '') AS model,
        max(ts) AS ts,
        arg_max_null(block_size, ts) AS block_size,
        arg_max(tier_used, ts) FILTER (tier_used IS NOT NULL) AS used,
        arg_max(tier_capacity, ts) FILTER (tier_capacity IS NOT NULL) AS capacity
    FROM engine_samples
    WHERE
        in_window(ts, getvariable('since'), getvariable('until'))
        AND coalesce(tier_used, tier_capacity) IS NOT NULL
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
    GROUP BY replica, observer
),

tiers AS (
    SELECT
        cache_dimension(getvariable('by'), latest.model, replica) AS value,
        observer, ts, used, capacity, block_size, g.bytes_per_token,
        unnest(list_distinct(list_transform(
            list_concat(map_keys(coalesce(used, MAP {})), map_keys(coalesce(capacity, MAP {}))),
            lambda key: split_part(key, '/', 1)
        ))) AS tier
    FROM latest
    LEFT JOIN kv_geometry AS g ON g.model = latest.model
)

SELECT
    value, observer, tier,
    sum_of_all(kv_tokens(capacity, tier, block_size, bytes_per_token)) AS capacity_tokens,
    sum_of_all(kv_tokens(used, tier, block_size, bytes_per_token)) AS used_tokens,
    sum_of_all(capacity[tier || '/bytes']) AS capacity_bytes,
    sum_of_all(used[tier || '/bytes']) AS used_bytes,
    count(*) AS replicas,
    max(ts) AS as_of
FROM tiers
GROUP BY value, observer, tier
ORDER BY value, observer, tier;
