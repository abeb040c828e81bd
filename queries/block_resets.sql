/*
name: block_resets
question: When did a cache lose all it held, and why?
grain: one row per reset; latest first
filters: [since, until, model, replica]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "When, UTC. A clear is published late: the time is that of the batch before it."}
  replica: {type: VARCHAR, unit: name, meaning: "Replica."}
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  tier: {type: VARCHAR, unit: name, meaning: "Tier that was emptied; '' where a page tells only that the process began anew."}
  reason: {type: VARCHAR, unit: name, meaning: "restart, clear, sleep, or lost_events (the state was given up because events are missing)."}
  blocks: {type: BIGINT, unit: blocks, meaning: "Blocks lost; NULL where only a metrics page tells."}
  basis: {type: VARCHAR, unit: name, meaning: "events, or engine counters: a metrics page that began anew, of replicas without events."}
*/
SELECT
    ts, replica, coalesce(model, told_model, '') AS model, tier, reason, blocks,
    'events' AS basis
FROM block_resets
LEFT JOIN told_models USING (replica)
WHERE
    in_window(ts, getvariable('since'), getvariable('until'))
    AND matches(coalesce(model, told_model, ''), getvariable('model'))
    AND matches(replica, getvariable('replica'))
UNION ALL
SELECT DISTINCT
    ts, replica, coalesce(model, '') AS model, '' AS tier, 'restart' AS reason,
    NULL::BIGINT AS blocks, 'engine counters' AS basis
FROM engine_own
WHERE
    reset
    AND in_window(ts, getvariable('since'), getvariable('until'))
    AND matches(coalesce(model, ''), getvariable('model'))
    AND matches(replica, getvariable('replica'))
    -- Where events tell of the replica, they tell of its resets.
    AND NOT EXISTS (
        SELECT 1 FROM told_caches AS t
        WHERE
            t.replica = engine_own.replica AND engine_own.ts >= t.told_from
            AND coalesce(engine_own.since, engine_own.ts) <= t.told_until
    )
ORDER BY ts DESC, replica, tier;
