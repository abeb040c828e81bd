/*
name: engine_ttft
question: How long until the first token by the engines' own histogram?
grain: one row, or one per value of `by`, with finished requests in the window
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica], meaning: "One row per value; one row for all if not set."}
filters: [since, until, model, replica]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests in the histogram."}
  mean_seconds: {type: DOUBLE, unit: seconds, meaning: "Sum of the times / requests; NULL where an engine gives no sum."}
  p50_seconds: {type: DOUBLE, unit: seconds, meaning: "Median, interpolated within its bucket; the last finite bound where it lies beyond."}
  p95_seconds: {type: DOUBLE, unit: seconds, meaning: "95th percentile, likewise."}
*/
WITH selected AS (
    SELECT
        cache_dimension(getvariable('by'), model, replica) AS value,
        replica, model, engine, version, ttft_buckets, ttft_sum_seconds, share
    FROM engine_shares(
        getvariable('since'), getvariable('until'), NULL,
        getvariable('model'), getvariable('replica')
    )
    WHERE ttft_buckets IS NOT NULL
),

means AS (
    SELECT
        value,
        CASE WHEN count(ttft_sum_seconds) = count(*) THEN sum(ttft_sum_seconds * share) END
            AS seconds
    FROM selected
    GROUP BY value
),

-- Counts are cumulative: add them up per process first, where the bounds are the same.
cumulative AS (
    SELECT value, replica, model, engine, version, bound.key AS upper, sum(bound.value * share) AS up_to
    FROM (SELECT *, unnest(map_entries(ttft_buckets)) AS bound FROM selected)
    GROUP BY ALL
),

buckets AS (
    SELECT
        value, upper,
        coalesce(lag(upper) OVER bounds, 0) AS lower,
        up_to - coalesce(lag(up_to) OVER bounds, 0) AS requests
    FROM cumulative
    WINDOW bounds AS (PARTITION BY value, replica, model, engine, version ORDER BY upper)
),

merged AS (
    SELECT value, lower, upper, sum(requests) AS requests FROM buckets GROUP BY ALL
),

ranked AS (
    SELECT
        *,
        sum(requests) OVER (PARTITION BY value ORDER BY upper, lower) AS up_to,
        sum(requests) OVER (PARTITION BY value) AS all_requests
    FROM merged
),

placed AS (
    SELECT
        *,
        CASE
            WHEN isinf(upper) THEN lower
            ELSE upper - (upper - lower) * (up_to - 0.5 * all_requests) / requests
        END AS at_50,
        CASE
            WHEN isinf(upper) THEN lower
            ELSE upper - (upper - lower) * (up_to - 0.95 * all_requests) / requests
        END AS at_95
    FROM ranked
    WHERE requests > 0
)

SELECT
    placed.value,
    known_total(placed.requests) AS requests,
    any_value(seconds) / sum(placed.requests) AS mean_seconds,
    arg_min(at_50, up_to) FILTER (up_to >= 0.5 * all_requests) AS p50_seconds,
    arg_min(at_95, up_to) FILTER (up_to >= 0.95 * all_requests) AS p95_seconds
FROM placed
LEFT JOIN means ON placed.value IS NOT DISTINCT FROM means.value
GROUP BY placed.value
ORDER BY requests DESC, placed.value;
