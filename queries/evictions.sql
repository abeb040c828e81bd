/*
name: evictions
question: How much KV leaves the cache to make room, and how fast against what it holds?
grain: one row per basis, observer and tier (and value of `by`) of which something is known
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica], meaning: "One row more per value; one per basis, observer and tier if not set."}
filters: [since, until, model, replica]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  basis: {type: VARCHAR, unit: name, meaning: "events = KV-cache events; engine counters = counters on metrics pages, of caches and times without events. Never both of one cache and time, never to be added up."}
  observer: {type: VARCHAR, unit: name, meaning: "Whose cache: engine or kv_store."}
  tier: {type: VARCHAR, unit: name, meaning: "Tier the blocks were in: device, host, disk or remote."}
  stored_blocks: {type: BIGINT, unit: blocks, meaning: "Came in. NULL by counters, like all that no counter tells."}
  evicted_blocks: {type: BIGINT, unit: blocks, meaning: "Lost to make room, no copy in a lower tier. Counters of tokens are divided by the block size."}
  demoted_blocks: {type: BIGINT, unit: blocks, meaning: "Left for a lower tier that keeps them."}
  promoted_blocks: {type: BIGINT, unit: blocks, meaning: "Came back from a lower tier."}
  reset_blocks: {type: BIGINT, unit: blocks, meaning: "Lost to restart, sleep, clear or lost events: no evictions."}
  stored_tokens: {type: BIGINT, unit: tokens, meaning: "stored_blocks x block size."}
  evicted_tokens: {type: BIGINT, unit: tokens, meaning: "Lost to make room."}
  demoted_tokens: {type: BIGINT, unit: tokens, meaning: "Left for a lower tier that keeps them."}
  promoted_tokens: {type: BIGINT, unit: tokens, meaning: "promoted_blocks x block size."}
  reset_tokens: {type: BIGINT, unit: tokens, meaning: "reset_blocks x block size."}
  evicted_units: {type: "MAP(VARCHAR, BIGINT)", unit: count, meaning: "Evicted where pages count neither blocks nor tokens: chunks, objects, bytes."}
  turnover_ratio: {type: DOUBLE, unit: ratio per minute, meaning: "(evicted + demoted tokens) / (capacity x minutes told): share of the capacity turned over per minute. NULL where a capacity is not known."}
  never_reused_ratio: {type: DOUBLE, unit: ratio, meaning: "Of evicted and demoted blocks of which it can be known (requests with chains tell): share no request reused."}
  reuse_known_blocks: {type: BIGINT, unit: blocks, meaning: "Denominator of never_reused_ratio."}
  told_seconds: {type: DOUBLE, unit: seconds, meaning: "Time the row speaks for, summed over replicas."}
  replicas: {type: BIGINT, unit: count, meaning: "Replicas behind the row."}
  uncertain: {type: VARCHAR, unit: text, meaning: "Why events may be missing from it; NULL = nothing is known to be."}
*/
WITH cells AS (
    SELECT *, cache_dimension(getvariable('by'), model, replica) AS value
    FROM block_turnover(
        getvariable('since'), getvariable('until'), NULL,
        getvariable('model'), getvariable('replica')
    )
)

SELECT
    value, basis, observer, tier,
    known_total(stored_blocks) AS stored_blocks,
    known_total(evicted_blocks) AS evicted_blocks,
    known_total(demoted_blocks) AS demoted_blocks,
    known_total(promoted_blocks) AS promoted_blocks,
    known_total(reset_blocks) AS reset_blocks,
    known_total(stored_blocks * block_size) AS stored_tokens,
    known_total(evicted_tokens) AS evicted_tokens,
    known_total(demoted_tokens) AS demoted_tokens,
    known_total(promoted_blocks * block_size) AS promoted_tokens,
    known_total(reset_blocks * block_size) AS reset_tokens,
    CASE
        WHEN count(other_units) FILTER (len(map_keys(other_units)) > 0) > 0
            THEN sum_histograms(list(other_units))
    END AS evicted_units,
    turnover_ratio(
        left_tokens, capacity_token_minutes,
        capacity_tokens IS NOT NULL AND coalesce(evicted_tokens, demoted_tokens) IS NOT NULL
    ) AS turnover_ratio,
    ratio(sum(never_reused_blocks), sum(reuse_known_blocks)) AS never_reused_ratio,
    known_total(reuse_known_blocks) AS reuse_known_blocks,
    sum(told_seconds) AS told_seconds,
    count(DISTINCT replica) AS replicas,
    reasons(uncertain) AS uncertain
FROM cells
GROUP BY value, basis, observer, tier
ORDER BY value, basis DESC, observer, tier;
