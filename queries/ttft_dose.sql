/*
name: ttft_dose
question: How does the time to first token grow with the tokens that had to be computed?
grain: one row per class of computed tokens and ttft_point
filters: [since, until, model, replica, route, template, tenant]
columns:
  from_tokens: {type: BIGINT, unit: tokens, meaning: "Smallest computed tokens of the class."}
  to_tokens: {type: BIGINT, unit: tokens, meaning: "First count above the class."}
  ttft_point: {type: VARCHAR, unit: name, meaning: "Where the clock stands: client, gateway, engine_arrival or engine_scheduled; never mixed."}
  requests: {type: BIGINT, unit: requests, meaning: "Reported requests with a measured time, rows still hot."}
  p50_seconds: {type: DOUBLE, unit: seconds, meaning: "Time to first token that 50 % of the requests stay within."}
  p95_seconds: {type: DOUBLE, unit: seconds, meaning: "Time to first token that 95 % of the requests stay within."}
*/
WITH percentiles AS (
    SELECT
        class_from(computed_tokens) AS from_tokens,
        class_to(computed_tokens) AS to_tokens,
        ttft_point,
        count(*) AS requests,
        quantile_cont(ttft_seconds, [0.5, 0.95]) AS quantiles
    FROM asked_first_tokens(
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('replica'),
        getvariable('route'), getvariable('template'), getvariable('tenant')
    )
    WHERE computed_tokens IS NOT NULL
    GROUP BY ALL
)

SELECT
    from_tokens, to_tokens, ttft_point, requests,
    quantiles[1] AS p50_seconds, quantiles[2] AS p95_seconds
FROM percentiles
ORDER BY ttft_point, from_tokens;
