/*
name: evictions_over_time
question: When did KV leave the cache to make room?
grain: one row per step, basis, observer and tier; 0 where events tell that nothing left, no row where nothing is told
params:
  step_seconds: {type: BIGINT, default: null, minimum: 60, meaning: "Length of a step; if not set, the shortest round one with at most 300 points. Events are kept by the minute."}
filters: [since, until, model, replica]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "Start of the step, UTC."}
  basis: {type: VARCHAR, unit: name, meaning: "events or engine counters, as in evictions; never to be added up."}
  observer: {type: VARCHAR, unit: name, meaning: "Whose cache: engine or kv_store."}
  tier: {type: VARCHAR, unit: name, meaning: "Tier the blocks were in."}
  stored_blocks: {type: BIGINT, unit: blocks, meaning: "Came in; NULL by counters."}
  evicted_blocks: {type: BIGINT, unit: blocks, meaning: "Lost to make room."}
  demoted_blocks: {type: BIGINT, unit: blocks, meaning: "Left for a lower tier that keeps them."}
  promoted_blocks: {type: BIGINT, unit: blocks, meaning: "Came back from a lower tier."}
  reset_blocks: {type: BIGINT, unit: blocks, meaning: "Lost to restart, sleep, clear or lost events."}
  evicted_tokens: {type: BIGINT, unit: tokens, meaning: "Lost to make room."}
  demoted_tokens: {type: BIGINT, unit: tokens, meaning: "Left for a lower tier that keeps them."}
  stored_blocks_per_minute: {type: DOUBLE, unit: blocks per minute, meaning: "stored_blocks over the part of the step that is told of."}
  evicted_blocks_per_minute: {type: DOUBLE, unit: blocks per minute, meaning: "evicted_blocks, likewise."}
  demoted_blocks_per_minute: {type: DOUBLE, unit: blocks per minute, meaning: "demoted_blocks, likewise."}
  turnover_ratio: {type: DOUBLE, unit: ratio per minute, meaning: "Share of the capacity turned over per minute, as in evictions."}
  uncertain: {type: VARCHAR, unit: text, meaning: "Why events may be missing from it; NULL = nothing is known to be."}
*/
WITH cells AS (
    FROM block_turnover(
        getvariable('since'), getvariable('until'),
        block_step(getvariable('step_seconds'), getvariable('since'), getvariable('until')),
        getvariable('model'), getvariable('replica')
    )
)

SELECT
    step_start AS ts, basis, observer, tier,
    known_total(stored_blocks) AS stored_blocks,
    known_total(evicted_blocks) AS evicted_blocks,
    known_total(demoted_blocks) AS demoted_blocks,
    known_total(promoted_blocks) AS promoted_blocks,
    known_total(reset_blocks) AS reset_blocks,
    known_total(evicted_tokens) AS evicted_tokens,
    known_total(demoted_tokens) AS demoted_tokens,
    -- Replicas tell side by side: their rates add up.
    sum(60 * stored_blocks / told_seconds) FILTER (told_seconds > 0)
        AS stored_blocks_per_minute,
    sum(60 * evicted_blocks / told_seconds) FILTER (told_seconds > 0)
        AS evicted_blocks_per_minute,
    sum(60 * demoted_blocks / told_seconds) FILTER (told_seconds > 0)
        AS demoted_blocks_per_minute,
    turnover_ratio(
        left_tokens, capacity_token_minutes,
        capacity_tokens IS NOT NULL AND coalesce(evicted_tokens, demoted_tokens) IS NOT NULL
    ) AS turnover_ratio,
    reasons(uncertain) AS uncertain
FROM cells
GROUP BY step_start, basis, observer, tier
ORDER BY step_start, basis DESC, observer, tier;
