/*
name: memory_split
question: Is the KV memory filled with running requests, with reusable prefixes or with nothing?
grain: one row, or one per value of `by`; the latest sample of each replica in the window
params:
  by: {type: VARCHAR, default: null, one_of: [replica, model], meaning: "One row per value; one row for all if not set."}
  since: {type: TIMESTAMP, default: null, meaning: "Start of the window, inclusive; all time if not set."}
  until: {type: TIMESTAMP, default: null, meaning: "End of the window, exclusive; open if not set."}
  model: {type: VARCHAR, default: null, meaning: "Only this model; '' is \"not given\"."}
  replica: {type: VARCHAR, default: null, meaning: "Only this replica."}
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  capacity_tokens: {type: BIGINT, unit: tokens, meaning: "KV tokens the memory holds; NULL where unknown."}
  running_tokens: {type: BIGINT, unit: tokens, meaning: "Held by running requests."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "Reusable but unreferenced; NULL where the engine does not say."}
  free_tokens: {type: BIGINT, unit: tokens, meaning: "Neither; NULL where the engine does not say."}
  kv_usage_ratio: {type: DOUBLE, unit: ratio, meaning: "Share held by running requests, weighted by capacity (plain mean where no capacity is known)."}
  max_kv_usage_ratio: {type: DOUBLE, unit: ratio, meaning: "The fullest replica."}
  replicas: {type: BIGINT, unit: count, meaning: "Replicas behind the row."}
  as_of: {type: TIMESTAMP, unit: time, meaning: "Latest of their samples."}
*/
WITH latest AS (
    SELECT
        replica,
        coalesce(arg_max_null(model, ts), '') AS model,
        max(ts) AS ts,
        arg_max_null(kv_usage_ratio, ts) AS kv_usage_ratio,
        arg_max_null(kv_capacity_tokens, ts) AS capacity_tokens,
        arg_max_null(
            coalesce(kv_running_tokens, round(kv_usage_ratio * kv_capacity_tokens)::BIGINT), ts
        ) AS running_tokens,
        -- Of the newest sample that tells of memory, where it may have become unknown again.
        arg_max(struct_pack(tokens := kv_cached_tokens), ts) FILTER (tells_memory).tokens
            AS cached_tokens,
        arg_max(struct_pack(tokens := kv_free_tokens), ts) FILTER (tells_memory).tokens
            AS free_tokens
    FROM (
        SELECT
            *,
            coalesce(kv_usage_ratio, kv_running_tokens, kv_cached_tokens) IS NOT NULL
                AS tells_memory
        FROM engine_own
    )
    WHERE
        in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
    GROUP BY replica
),

selected AS (
    SELECT
        *,
        CASE
            WHEN getvariable('by') IS NULL THEN NULL
            WHEN getvariable('by') = 'replica' THEN replica
            WHEN getvariable('by') = 'model' THEN model
            ELSE error('unknown dimension ' || getvariable('by'))
        END AS value
    FROM latest
)

-- A sum is known only where it is known of every replica.
SELECT
    value,
    CASE WHEN count(capacity_tokens) = count(*) THEN sum(capacity_tokens) END::BIGINT
        AS capacity_tokens,
    CASE WHEN count(running_tokens) = count(*) THEN sum(running_tokens) END::BIGINT
        AS running_tokens,
    CASE WHEN count(cached_tokens) = count(*) THEN sum(cached_tokens) END::BIGINT
        AS cached_tokens,
    CASE WHEN count(free_tokens) = count(*) THEN sum(free_tokens) END::BIGINT AS free_tokens,
    coalesce(
        ratio(
            sum(kv_usage_ratio * capacity_tokens),
            sum(CASE WHEN kv_usage_ratio IS NOT NULL THEN capacity_tokens END)
        ),
        avg(kv_usage_ratio)
    ) AS kv_usage_ratio,
    max(kv_usage_ratio) AS max_kv_usage_ratio,
    count(*) AS replicas,
    max(ts) AS as_of
FROM selected
GROUP BY value
ORDER BY value;
