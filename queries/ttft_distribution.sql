/*
name: ttft_distribution
question: How are times to first token distributed, hits against misses?
grain: one row per outcome, ttft_point and bucket with requests; bounds grow by 8 %
filters: [since, until, model, replica, route, template, tenant]
columns:
  outcome: {type: VARCHAR, unit: name, meaning: "miss, partial, hit or unknown."}
  ttft_point: {type: VARCHAR, unit: name, meaning: "Where the clock stands: client, gateway, engine_arrival or engine_scheduled; never mixed."}
  from_seconds: {type: DOUBLE, unit: seconds, meaning: "Lower bound of the bucket, inclusive."}
  to_seconds: {type: DOUBLE, unit: seconds, meaning: "Upper bound, exclusive."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests with a measured time in the bucket, rows still hot."}
*/
WITH bucketed AS (
    SELECT
        outcome, ttft_point,
        floor(ln(ttft_seconds) / ln(1.08))::INTEGER AS bucket,
        count(*) AS requests
    FROM asked_first_tokens(
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('replica'),
        getvariable('route'), getvariable('template'), getvariable('tenant')
    )
    WHERE ttft_seconds > 0
    GROUP BY ALL
)

SELECT
    outcome, ttft_point,
    pow(1.08, bucket) AS from_seconds,
    pow(1.08, bucket + 1) AS to_seconds,
    requests
FROM bucketed
ORDER BY ttft_point, outcome, bucket;
