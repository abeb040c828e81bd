/*
name: memory_over_time
question: How did the use of KV memory move?
grain: one row per step and replica with samples; means over the step
params:
  step_seconds: {type: BIGINT, default: null, minimum: 1, meaning: "Length of a step; if not set, the shortest round one with at most 300 points. Never finer than what is kept."}
filters: [since, until, model, replica]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "Start of the step, UTC."}
  replica: {type: VARCHAR, unit: name, meaning: "Replica."}
  kv_usage_ratio: {type: DOUBLE, unit: ratio, meaning: "Share held by running requests."}
  running_tokens: {type: BIGINT, unit: tokens, meaning: "Held by running requests. Where only some samples of a step tell what is cached and free, all parts are means over these, so that they add up."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "Reusable but unreferenced, as in memory_split; NULL where neither engine nor events tell."}
  free_tokens: {type: BIGINT, unit: tokens, meaning: "Neither; NULL where neither engine nor events tell."}
  capacity_tokens: {type: BIGINT, unit: tokens, meaning: "KV tokens the memory holds; NULL where unknown."}
  basis: {type: VARCHAR, unit: name, meaning: "What tells cached and free: engine (its own gauges) or events; NULL where nothing tells."}
  uncertain: {type: VARCHAR, unit: text, meaning: "Why cached and free by events may be wrong; NULL = nothing is known to be."}
*/
SELECT
    time_bucket(
        to_seconds(engine_step(
            getvariable('step_seconds'), getvariable('since'), getvariable('until')
        )),
        ts
    ) AS ts,
    replica,
    avg(kv_usage_ratio) AS kv_usage_ratio,
    round(coalesce(
        avg(running_tokens) FILTER (cached_tokens IS NOT NULL), avg(running_tokens)
    ))::BIGINT AS running_tokens,
    round(avg(cached_tokens))::BIGINT AS cached_tokens,
    round(avg(free_tokens))::BIGINT AS free_tokens,
    round(coalesce(
        avg(capacity_tokens) FILTER (cached_tokens IS NOT NULL), avg(capacity_tokens)
    ))::BIGINT AS capacity_tokens,
    nullif(string_agg(DISTINCT basis, ' and ' ORDER BY basis DESC), '') AS basis,
    reasons(uncertain) AS uncertain
FROM memory_samples
WHERE
    in_window(memory_samples.ts, getvariable('since'), getvariable('until'))
    AND matches(coalesce(model, ''), getvariable('model'))
    AND matches(replica, getvariable('replica'))
GROUP BY 1, 2
ORDER BY 1, 2;
