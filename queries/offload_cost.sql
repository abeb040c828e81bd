/*
name: offload_cost
question: What do lower tiers cost in writes, in what is never read, and in what is dropped?
grain: one row per lower tier at work (and value of `by`)
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica], meaning: "One row more per value; one per tier if not set."}
filters: [since, until, model, replica]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  tier: {type: VARCHAR, unit: name, meaning: "The lower tier: host, disk or remote."}
  stored_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens written to it; NULL where no page counts them."}
  stored_bytes: {type: BIGINT, unit: bytes, meaning: "Bytes written to it; NULL where no page counts them."}
  store_seconds: {type: DOUBLE, unit: seconds, meaning: "Time the writes took, summed over transfers and ranks side by side."}
  loaded_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens brought back in the same window."}
  loaded_bytes: {type: BIGINT, unit: bytes, meaning: "Bytes brought back in the same window."}
  unread_tokens: {type: BIGINT, unit: tokens, meaning: "At least so many tokens written in the window were not read in it: stored - loaded (a token read twice counts twice, so it may be more)."}
  unread_bytes: {type: BIGINT, unit: bytes, meaning: "The same in bytes."}
  dropped_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens meant for it and not written; NULL where no page counts them."}
  counted_seconds: {type: DOUBLE, unit: seconds, meaning: "The horizon: length of the window as far as samples of offload cover it."}
*/
WITH horizon AS (
    SELECT epoch(
        least(max(ts), coalesce(getvariable('until')::TIMESTAMP, max(ts)))
        - greatest(min(since), coalesce(getvariable('since')::TIMESTAMP, min(since)))
    ) AS seconds
    FROM engine_samples
    WHERE
        coalesce(offload_tokens, offload_bytes, offload_seconds) IS NOT NULL
        AND reaches_into(since, ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
)

SELECT
    CASE WHEN getvariable('by') IS NOT NULL THEN value END AS value,
    tier,
    round(stored_tokens)::BIGINT AS stored_tokens,
    round(stored_bytes)::BIGINT AS stored_bytes,
    store_seconds,
    round(loaded_tokens)::BIGINT AS loaded_tokens,
    round(loaded_bytes)::BIGINT AS loaded_bytes,
    round(CASE WHEN stored_tokens > loaded_tokens THEN stored_tokens - loaded_tokens
        WHEN stored_tokens <= loaded_tokens THEN 0 END)::BIGINT AS unread_tokens,
    round(CASE WHEN stored_bytes > loaded_bytes THEN stored_bytes - loaded_bytes
        WHEN stored_bytes <= loaded_bytes THEN 0 END)::BIGINT AS unread_bytes,
    round(dropped_tokens)::BIGINT AS dropped_tokens,
    seconds AS counted_seconds
FROM offload_loads(
    getvariable('by'), getvariable('since'), getvariable('until'),
    getvariable('model'), getvariable('replica')
)
CROSS JOIN horizon
ORDER BY value, tier;
