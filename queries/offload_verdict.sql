/*
name: offload_verdict
question: Does keeping KV in lower tiers pay?
grain: one row per lower tier at work (and value of `by`); a higher hit ratio alone is no gain
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica], meaning: "One row more per value; one per tier if not set."}
  ranks: {type: BIGINT, default: null, minimum: 1, meaning: "Ranks of a replica whose transfer times its page adds up; unknown if not set, then counted load times are an upper bound."}
  least_gain_ratio: {type: DOUBLE, default: 0.05, meaning: "Smallest gain in time to first token that would count, as a share of what computing takes."}
filters: [since, until, model, replica]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  tier: {type: VARCHAR, unit: name, meaning: "The lower tier: host, disk or remote."}
  verdict: {type: VARCHAR, unit: text, meaning: "pays, does not pay or cannot be told."}
  sentence: {type: VARCHAR, unit: text, meaning: "The verdict with its evidence, in words."}
  missing: {type: VARCHAR, unit: text, meaning: "What is not known, parted by semicolons; '' where nothing is missing."}
  basis: {type: VARCHAR, unit: text, meaning: "What it rests on: requests (their first tokens compared) or counters (load and write times against prefill); NULL where it cannot be told."}
  served_requests: {type: BIGINT, unit: requests, meaning: "Requests served from the tier that could be compared."}
  difference_seconds: {type: DOUBLE, unit: seconds, meaning: "Their time to first token less queue against requests that computed as much; negative = sooner. See offload_ttft."}
  low_seconds: {type: DOUBLE, unit: seconds, meaning: "Lower end of its 95 % interval."}
  high_seconds: {type: DOUBLE, unit: seconds, meaning: "Upper end of it."}
  load_seconds_per_token: {type: DOUBLE, unit: seconds per token, meaning: "Counted time of loads / tokens loaded. See offload_load."}
  prefill_seconds_per_token: {type: DOUBLE, unit: seconds per token, meaning: "1 / prefill speed. See offload_load."}
  break_even_tokens: {type: DOUBLE, unit: tokens, meaning: "From so many tokens on a load is sooner than computing. See offload_ttft."}
  gained_seconds: {type: DOUBLE, unit: seconds, meaning: "What all requests served from the tier gained: difference x requests; 0 if none."}
  lost_seconds: {type: DOUBLE, unit: seconds, meaning: "What computing requests lost while transfers of any tier ran; 0 where that is not more than chance or not known."}
*/
WITH facts AS (
    SELECT *, sum(gained_seconds) FILTER (gain = 'gain') OVER (PARTITION BY value) AS all_gained
    FROM offload_facts(
        getvariable('by'), getvariable('since'), getvariable('until'),
        getvariable('model'), getvariable('replica'),
        coalesce(getvariable('least_gain_ratio'), 0.05)
    )
),

judged AS (
    SELECT
        *,
        load_seconds_per_token / coalesce(getvariable('ranks'), 1) AS load_token_seconds,
        timed_tokens * prefill_seconds_per_token AS computing_seconds,
        CASE
            WHEN gain = 'gain' AND lost_seconds >= all_gained THEN 'requests lose'
            WHEN gain = 'gain' THEN 'requests gain'
            WHEN gain = 'none' THEN 'requests do not gain'
            WHEN gain IS NOT NULL THEN NULL
            WHEN (load_seconds + store_seconds) / coalesce(getvariable('ranks'), 1) + lost_seconds
                < computing_seconds THEN 'counters gain'
            WHEN getvariable('ranks') IS NOT NULL
                AND load_token_seconds >= prefill_seconds_per_token THEN 'counters lose'
        END AS finding
    FROM facts
),

told AS (
    SELECT
        *,
        CASE
            WHEN finding IN ('requests gain', 'counters gain') THEN 'pays'
            WHEN finding IS NOT NULL THEN 'does not pay'
            ELSE 'cannot be told'
        END AS verdict,
        array_to_string(offload_missing(
            tier, gain, coalesce(reported_requests, 0), coalesce(named_requests, 0),
            coalesce(tier_requests, 0), coalesce(timed_requests, 0), coalesce(waited_requests, 0),
            coalesce(served_requests, 0), coalesce(computed_requests, 0), loaded_tokens,
            load_seconds, store_seconds, load_seconds_per_token, prefill_seconds_per_token,
            getvariable('ranks'), finding
        ), '; ') AS missing
    FROM judged
)

SELECT
    CASE WHEN getvariable('by') IS NOT NULL THEN value END AS value,
    tier, verdict,
    concat_ws('; ',
        verdict || CASE
            WHEN finding IS NULL THEN ' (missing: ' || missing || ')'
            ELSE ': ' || offload_reason(
                finding, tier, difference_seconds, low_seconds, high_seconds, computed_seconds,
                served_requests, computed_requests, ttft_point, all_gained, lost_seconds,
                coalesce(getvariable('least_gain_ratio'), 0.05)
            )
        END,
        said_loads(load_token_seconds, prefill_seconds_per_token, getvariable('ranks')),
        said_break_even(break_even_tokens, fixed_seconds),
        said_costs(tier, store_seconds, stored_tokens, loaded_tokens, dropped_tokens),
        said_slowdown(slowdown_known, slowdown_seconds, slowdown_low_seconds, slowed_requests)
    ) || '.' AS sentence,
    missing,
    split_part(finding, ' ', 1) AS basis,
    served_requests, difference_seconds, low_seconds, high_seconds,
    load_token_seconds AS load_seconds_per_token, prefill_seconds_per_token, break_even_tokens,
    CASE WHEN gain IS NOT NULL THEN gained_seconds END AS gained_seconds,
    lost_seconds
FROM told
ORDER BY value, tier;
