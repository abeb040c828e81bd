/*
name: offload_load
question: How long does a token take to come back from a lower tier, and how long to compute?
grain: one row per lower tier at work (and value of `by`)
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica], meaning: "One row more per value; one per tier if not set."}
filters: [since, until, model, replica]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  tier: {type: VARCHAR, unit: name, meaning: "The lower tier: host, disk or remote (which also stands for a connector that does not say)."}
  loaded_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens brought back from it."}
  tokens_from: {type: VARCHAR, unit: text, meaning: "What counted them: transfers, or cached tokens of requests where no page counts transfers in tokens."}
  loaded_bytes: {type: BIGINT, unit: bytes, meaning: "Bytes brought back, all ranks; NULL where no page counts them."}
  load_seconds: {type: DOUBLE, unit: seconds, meaning: "Time of these loads, summed over transfers and ranks side by side; NULL where no page counts it."}
  bytes_per_second: {type: DOUBLE, unit: bytes per second, meaning: "loaded_bytes / load_seconds, of replicas that count both: speed of one transfer."}
  load_seconds_per_token: {type: DOUBLE, unit: seconds per token, meaning: "load_seconds / loaded_tokens: at most what a request waits for a token, because side-by-side time is summed."}
  prefill_seconds_per_token: {type: DOUBLE, unit: seconds per token, meaning: "Estimate: 1 / prefill speed of the replicas that loaded, else of their model; NULL without a speed."}
*/
SELECT
    CASE WHEN getvariable('by') IS NOT NULL THEN value END AS value,
    tier,
    round(loaded_tokens)::BIGINT AS loaded_tokens,
    tokens_from,
    round(loaded_bytes)::BIGINT AS loaded_bytes,
    load_seconds,
    bytes_per_second,
    load_seconds_per_token,
    prefill_seconds_per_token
FROM offload_loads(
    getvariable('by'), getvariable('since'), getvariable('until'),
    getvariable('model'), getvariable('replica')
)
ORDER BY value, tier;
