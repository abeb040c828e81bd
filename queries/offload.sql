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
  bytes_per_second: {type: DOUBLE, unit: bytes per second, meaning: "bytes / seconds, of replicas that count both: speed of one transfer; NULL without both."}
*/
WITH sums AS (
    SELECT
        CASE WHEN getvariable('by') IS NOT NULL THEN value END AS value,
        observer, direction, tier,
        sum(tokens) AS tokens, sum(bytes) AS bytes, sum(seconds) AS seconds,
        transfer_speed(bytes, seconds) AS bytes_per_second
    FROM offload_moved(
        getvariable('by'), getvariable('since'), getvariable('until'), NULL,
        getvariable('model'), getvariable('replica')
    )
    GROUP BY ALL
)

SELECT
    value, observer, direction, tier,
    round(tokens)::BIGINT AS tokens,
    round(bytes)::BIGINT AS bytes,
    seconds,
    bytes_per_second
FROM sums
WHERE coalesce(tokens, bytes, seconds) IS NOT NULL
ORDER BY value, observer, direction, tier;
