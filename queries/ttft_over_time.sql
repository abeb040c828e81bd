/*
name: ttft_over_time
question: How did times to first token move, hits against misses?
grain: one row per step, outcome and ttft_point with requests
params:
  step_seconds: {type: BIGINT, default: null, minimum: 1, meaning: "Length of a step; if not set, the shortest round one with at most 300 points. Never finer than what is kept."}
filters: [since, until, model, replica, route, template, tenant]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "Start of the step, UTC."}
  outcome: {type: VARCHAR, unit: name, meaning: "miss, partial, hit or unknown."}
  ttft_point: {type: VARCHAR, unit: name, meaning: "Where the clock stands: client, gateway, engine_arrival or engine_scheduled; never mixed."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests with a measured time."}
  p50_seconds: {type: DOUBLE, unit: seconds, meaning: "Median, from histograms: right to 4 %."}
  p95_seconds: {type: DOUBLE, unit: seconds, meaning: "95th percentile, from histograms: right to 4 %."}
*/
-- Minutes know no template and no tenant, hours no replica: the filters decide who answers.
-- Rows still hot do where neither can, and rows that are not folded yet join in. Hours know a tenant
-- that has no place of its own as one of many others: of it rows tell as long as they are hot.
WITH asked AS (
    SELECT
        coalesce(
            getvariable('tenant') NOT IN ('', 'other')
            AND NOT EXISTS (
                FROM label_values WHERE label = 'tenant' AND value = getvariable('tenant')
            ),
            false
        ) AS tenant_is_folded,
        hour AS hot_hour
    FROM hot_from
),

rolled AS (
    SELECT
        minute AS ts, 60 AS seconds, coalesce(ttft_point, '') AS ttft_point,
        ttft_miss, ttft_partial, ttft_hit, ttft_unknown
    FROM minute_rollup
    WHERE
        getvariable('template') IS NULL AND getvariable('tenant') IS NULL
        AND in_window(minute, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(coalesce(replica, ''), getvariable('replica'))
        AND matches(coalesce(route, ''), getvariable('route'))
    UNION ALL
    SELECT
        hour AS ts, 3600 AS seconds, coalesce(ttft_point, '') AS ttft_point,
        ttft_miss, ttft_partial, ttft_hit, ttft_unknown
    FROM hour_rollup, asked
    WHERE
        (getvariable('template') IS NOT NULL OR getvariable('tenant') IS NOT NULL)
        AND (NOT tenant_is_folded OR hour < hot_hour)
        AND getvariable('replica') IS NULL
        AND in_window(hour, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(coalesce(route, ''), getvariable('route'))
        AND matches(coalesce(template, ''), getvariable('template'))
        AND matches(coalesce(tenant, ''), getvariable('tenant'))
    UNION ALL
    SELECT
        ts, 1 AS seconds, ttft_point,
        CASE outcome WHEN 'miss' THEN one_request END,
        CASE outcome WHEN 'partial' THEN one_request END,
        CASE outcome WHEN 'hit' THEN one_request END,
        CASE outcome WHEN 'unknown' THEN one_request END
    FROM (
        SELECT *, MAP {floor(ln(ttft_seconds) / ln(1.08))::INTEGER: 1::BIGINT} AS one_request
        FROM asked_first_tokens(
            getvariable('since'), getvariable('until'),
            getvariable('model'), getvariable('replica'), getvariable('route'),
            getvariable('template'), getvariable('tenant')
        )
        WHERE ttft_seconds > 0
    ), asked
    WHERE
        (
            (getvariable('template') IS NOT NULL OR getvariable('tenant') IS NOT NULL)
            AND getvariable('replica') IS NOT NULL
        )
        OR (tenant_is_folded AND ts >= hot_hour)
        OR batch > (SELECT coalesce(max(batch), 0) FROM folded)
),

step AS (
    SELECT
        log_step(
            getvariable('step_seconds'), getvariable('since'), getvariable('until'),
            ts, rolled.seconds
        ) AS seconds
    FROM rolled
),

entries AS (
    SELECT
        time_bucket(to_seconds(step.seconds), ts) AS ts,
        outcome, ttft_point,
        unnest(map_entries(histogram)) AS entry
    FROM (
        UNPIVOT rolled ON
            ttft_miss AS 'miss', ttft_partial AS 'partial',
            ttft_hit AS 'hit', ttft_unknown AS 'unknown'
        INTO NAME outcome VALUE histogram
    ), step
),

buckets AS (
    SELECT ts, outcome, ttft_point, entry.key AS bucket, total(entry.value) AS requests
    FROM entries
    GROUP BY ALL
    HAVING total(entry.value) > 0
),

ranked AS (
    SELECT
        *,
        sum(requests) OVER (upwards) AS up_to,
        sum(requests) OVER (PARTITION BY ts, outcome, ttft_point) AS all_requests
    FROM buckets
    WINDOW upwards AS (PARTITION BY ts, outcome, ttft_point ORDER BY bucket)
)

-- Within a bucket the requests are taken to be spread evenly on the log scale.
SELECT
    ts, outcome, ttft_point,
    total(requests) AS requests,
    min(pow(1.08, bucket + 1 - (up_to - 0.5 * all_requests) / requests))
        FILTER (up_to >= 0.5 * all_requests) AS p50_seconds,
    min(pow(1.08, bucket + 1 - (up_to - 0.95 * all_requests) / requests))
        FILTER (up_to >= 0.95 * all_requests) AS p95_seconds
FROM ranked
GROUP BY ALL
ORDER BY ts, ttft_point, outcome;
