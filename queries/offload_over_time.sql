/*
name: offload_over_time
question: How much KV moved to and from lower tiers, and how fast, over time?
grain: one row per step, direction and tier with transfers counted
params:
  step_seconds: {type: BIGINT, default: null, minimum: 1, meaning: "Length of a step; one that gives at most 300 points if not set."}
filters: [since, until, model, replica]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "Start of the step, UTC."}
  direction: {type: VARCHAR, unit: name, meaning: "store = written to the tier, load = brought back from it."}
  tier: {type: VARCHAR, unit: name, meaning: "The lower tier: host, disk or remote."}
  tokens: {type: BIGINT, unit: tokens, meaning: "Tokens moved; NULL where no page counts them."}
  bytes: {type: BIGINT, unit: bytes, meaning: "Bytes moved, all ranks; NULL where no page counts them."}
  seconds: {type: DOUBLE, unit: seconds, meaning: "Time the transfers took, summed over transfers side by side."}
  bytes_per_second: {type: DOUBLE, unit: bytes per second, meaning: "bytes / seconds, of replicas that count both: speed of one transfer; NULL without both."}
*/
WITH moved AS (
    SELECT
        step_start, direction, tier,
        -- Where engine and KV store both count, they count the same transfers.
        coalesce(sum(tokens) FILTER (observer = 'engine'), sum(tokens)) AS tokens,
        coalesce(sum(bytes) FILTER (observer = 'engine'), sum(bytes)) AS bytes,
        coalesce(sum(seconds) FILTER (observer = 'engine'), sum(seconds)) AS seconds,
        coalesce(
            transfer_speed(
                CASE WHEN observer = 'engine' THEN bytes END,
                CASE WHEN observer = 'engine' THEN seconds END
            ),
            transfer_speed(bytes, seconds)
        ) AS bytes_per_second
    FROM offload_moved(
        NULL, getvariable('since'), getvariable('until'),
        engine_step(getvariable('step_seconds'), getvariable('since'), getvariable('until')),
        getvariable('model'), getvariable('replica')
    )
    GROUP BY step_start, direction, tier
)

SELECT
    step_start AS ts, direction, tier,
    round(tokens)::BIGINT AS tokens,
    round(bytes)::BIGINT AS bytes,
    seconds,
    bytes_per_second
FROM moved
WHERE coalesce(tokens, bytes, seconds) IS NOT NULL
ORDER BY ts, direction, tier;
