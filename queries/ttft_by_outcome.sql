/*
name: ttft_by_outcome
question: How long until the first token for hits and misses, overall or at equal length?
grain: one row per outcome and ttft_point, and with `within` per class of token counts
params:
  within: {type: VARCHAR, default: null, one_of: [prompt, computed], meaning: "Compare within classes of similar prompt or computed tokens; overall if not set."}
filters: [since, until, model, replica, route, template, tenant]
columns:
  within_from: {type: BIGINT, unit: tokens, meaning: "Smallest count of the class; NULL without within."}
  within_to: {type: BIGINT, unit: tokens, meaning: "First count above the class; NULL without within."}
  outcome: {type: VARCHAR, unit: name, meaning: "miss, partial, hit or unknown."}
  ttft_point: {type: VARCHAR, unit: name, meaning: "Where the clock stands: client, gateway, engine_arrival or engine_scheduled; never mixed."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests with a measured time, rows still hot."}
  mean_seconds: {type: DOUBLE, unit: seconds, meaning: "Mean time to first token."}
  p50_seconds: {type: DOUBLE, unit: seconds, meaning: "Time to first token that 50 % of the requests stay within."}
  p90_seconds: {type: DOUBLE, unit: seconds, meaning: "Time to first token that 90 % of the requests stay within."}
  p95_seconds: {type: DOUBLE, unit: seconds, meaning: "Time to first token that 95 % of the requests stay within."}
  p99_seconds: {type: DOUBLE, unit: seconds, meaning: "Time to first token that 99 % of the requests stay within."}
*/
WITH selected AS (
    SELECT
        outcome, ttft_point, ttft_seconds,
        CASE
            WHEN getvariable('within') IS NULL THEN NULL
            WHEN getvariable('within') = 'prompt' THEN prompt_tokens
            WHEN getvariable('within') = 'computed' THEN computed_tokens
            ELSE error('unknown within ' || getvariable('within'))
        END AS tokens
    FROM asked_first_tokens(
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('replica'),
        getvariable('route'), getvariable('template'), getvariable('tenant')
    )
),

percentiles AS (
    SELECT
        CASE WHEN tokens IS NOT NULL THEN class_from(tokens) END AS within_from,
        CASE WHEN tokens IS NOT NULL THEN class_to(tokens) END AS within_to,
        outcome, ttft_point,
        count(*) AS requests,
        avg(ttft_seconds) AS mean_seconds,
        quantile_cont(ttft_seconds, [0.5, 0.9, 0.95, 0.99]) AS quantiles
    FROM selected
    WHERE getvariable('within') IS NULL OR tokens IS NOT NULL
    GROUP BY ALL
)

SELECT
    within_from, within_to, outcome, ttft_point, requests, mean_seconds,
    quantiles[1] AS p50_seconds, quantiles[2] AS p90_seconds, quantiles[3] AS p95_seconds, quantiles[4] AS p99_seconds
FROM percentiles
ORDER BY ttft_point, within_from, outcome;
