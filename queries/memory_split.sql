/*
name: memory_split
question: Is the KV memory filled with running requests, with reusable prefixes or with nothing?
grain: one row, or one per value of `by`; the latest sample of each replica in the window
params:
  by: {type: VARCHAR, default: null, one_of: [replica, model], meaning: "One row per value; one row for all if not set."}
filters: [since, until, model, replica]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  capacity_tokens: {type: BIGINT, unit: tokens, meaning: "KV tokens the memory holds; NULL where unknown."}
  running_tokens: {type: BIGINT, unit: tokens, meaning: "Held by running requests."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "Reusable but unreferenced: the engine's own gauge, else, by events, resident - (running - one block per running request, at least 0); NULL where neither tells."}
  free_tokens: {type: BIGINT, unit: tokens, meaning: "Neither: the engine's own gauge, else capacity - running - cached; NULL where neither tells."}
  resident_tokens: {type: BIGINT, unit: tokens, meaning: "Full blocks that can be reused, held by running requests or not, by events; NULL without."}
  kv_usage_ratio: {type: DOUBLE, unit: ratio, meaning: "Share held by running requests, weighted by capacity (plain mean where no capacity is known)."}
  max_kv_usage_ratio: {type: DOUBLE, unit: ratio, meaning: "The fullest replica."}
  capacity_blocks: {type: BIGINT, unit: blocks, meaning: "capacity_tokens / block size."}
  running_blocks: {type: BIGINT, unit: blocks, meaning: "running_tokens / block size."}
  cached_blocks: {type: BIGINT, unit: blocks, meaning: "cached_tokens / block size."}
  free_blocks: {type: BIGINT, unit: blocks, meaning: "free_tokens / block size."}
  capacity_bytes: {type: BIGINT, unit: bytes, meaning: "capacity_tokens x bytes per token, all GPUs of a replica; NULL where the model's KV geometry is not in the settings."}
  running_bytes: {type: BIGINT, unit: bytes, meaning: "running_tokens x bytes per token."}
  cached_bytes: {type: BIGINT, unit: bytes, meaning: "cached_tokens x bytes per token."}
  free_bytes: {type: BIGINT, unit: bytes, meaning: "free_tokens x bytes per token."}
  basis: {type: VARCHAR, unit: name, meaning: "What tells cached and free: engine (its own gauges), events, or both, each of other replicas; NULL where nothing tells."}
  uncertain: {type: VARCHAR, unit: text, meaning: "Why cached and free by events may be wrong; NULL = nothing is known to be."}
  replicas: {type: BIGINT, unit: count, meaning: "Replicas behind the row."}
  as_of: {type: TIMESTAMP, unit: time, meaning: "Latest of their samples."}
*/
WITH latest AS (
    SELECT
        replica,
        coalesce(arg_max_null(model, ts), '') AS model,
        max(ts) AS ts,
        arg_max_null(kv_usage_ratio, ts) AS kv_usage_ratio,
        arg_max_null(capacity_tokens, ts) AS capacity_tokens,
        arg_max_null(running_tokens, ts) AS running_tokens,
        arg_max_null(block_size, ts) AS block_size,
        -- Of the newest sample that tells of memory, where it may have become unknown again.
        arg_max(
            struct_pack(
                cached := cached_tokens, free := free_tokens, resident := resident_tokens,
                basis := basis, uncertain := uncertain
            ), ts
        ) FILTER (tells_memory) AS newest
    FROM memory_samples
    WHERE
        in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
    GROUP BY replica
),

selected AS (
    SELECT
        * EXCLUDE (newest), newest.cached AS cached_tokens, newest.free AS free_tokens,
        newest.resident AS resident_tokens, newest.basis AS basis, newest.uncertain AS uncertain,
        g.bytes_per_token,
        cache_dimension(getvariable('by'), latest.model, replica) AS value
    FROM latest
    LEFT JOIN kv_geometry AS g ON g.model = latest.model
)

SELECT
    value,
    sum_of_all(capacity_tokens) AS capacity_tokens,
    sum_of_all(running_tokens) AS running_tokens,
    sum_of_all(cached_tokens) AS cached_tokens,
    sum_of_all(free_tokens) AS free_tokens,
    sum_of_all(resident_tokens) AS resident_tokens,
    coalesce(
        ratio(
            sum(kv_usage_ratio * capacity_tokens),
            sum(CASE WHEN kv_usage_ratio IS NOT NULL THEN capacity_tokens END)
        ),
        avg(kv_usage_ratio)
    ) AS kv_usage_ratio,
    max(kv_usage_ratio) AS max_kv_usage_ratio,
    sum_of_all(round(capacity_tokens / block_size)) AS capacity_blocks,
    sum_of_all(round(running_tokens / block_size)) AS running_blocks,
    sum_of_all(round(cached_tokens / block_size)) AS cached_blocks,
    sum_of_all(round(free_tokens / block_size)) AS free_blocks,
    sum_of_all(capacity_tokens * bytes_per_token) AS capacity_bytes,
    sum_of_all(running_tokens * bytes_per_token) AS running_bytes,
    sum_of_all(cached_tokens * bytes_per_token) AS cached_bytes,
    sum_of_all(free_tokens * bytes_per_token) AS free_bytes,
    nullif(string_agg(DISTINCT basis, ' and ' ORDER BY basis DESC), '') AS basis,
    reasons(uncertain) AS uncertain,
    count(*) AS replicas,
    max(ts) AS as_of
FROM selected
GROUP BY value
ORDER BY value;
