/*
name: pain
question: Does it hurt, by first-token time and prefill against the same hours before?
grain: one row
params:
  until: {type: TIMESTAMP, default: null, meaning: "End of the window, exclusive; after the newest request if not set."}
  window_seconds: {type: BIGINT, default: 3600, minimum: 1, meaning: "Length of the window."}
  zone: {type: VARCHAR, default: UTC, meaning: "Time zone whose hours of the week are compared, like Europe/Berlin."}
  route: {type: VARCHAR, default: null, meaning: "Only this route; then engines tell nothing."}
  template: {type: VARCHAR, default: null, meaning: "Only this template; then engines tell nothing."}
  tenant: {type: VARCHAR, default: null, meaning: "Only this tenant; then engines tell nothing."}
filters: [model, replica]
columns:
  ttft_p90_seconds: {type: DOUBLE, unit: seconds, meaning: "Time to first token that 90 % of the requests stay within; NULL where nothing measures it."}
  usual_ttft_p90_seconds: {type: DOUBLE, unit: seconds, meaning: "Median of the same in these local hours of the last four weeks; NULL without any."}
  ttft_weeks: {type: BIGINT, unit: count, meaning: "Weeks behind usual_ttft_p90_seconds."}
  ttft_requests: {type: BIGINT, unit: requests, meaning: "Requests with a measured time in the window."}
  ttft_point: {type: VARCHAR, unit: name, meaning: "Where the clock stands: the point with most requests, never mixed with another; histogram for the engines' own; NULL where nothing measures it."}
  computed_tokens_per_second: {type: DOUBLE, unit: tokens per second, meaning: "Prefill done, mean over the window, or over the part since anything was kept at all, but a minute at least."}
  peak_computed_tokens_per_second: {type: DOUBLE, unit: tokens per second, meaning: "The highest clock hour of the four weeks before; NULL without any."}
  peak_hour: {type: TIMESTAMP, unit: time, meaning: "That hour, UTC."}
  computed_basis: {type: VARCHAR, unit: name, meaning: "log (of reported requests), or engine where no row of the window reports; NULL without either."}
*/
WITH windows AS (
    SELECT week, begins, ends
    FROM drop_windows(
        NULL, getvariable('until'), coalesce(getvariable('window_seconds'), 3600),
        coalesce(getvariable('zone'), 'UTC')
    )
    WHERE is_asked
),

-- Rows: the point most requests of the window were measured at.
timed AS MATERIALIZED (
    SELECT week, ttft_point, count(*) AS requests, quantile_cont(ttft_seconds, 0.9) AS p90_seconds
    FROM first_tokens
    JOIN windows ON ts >= begins AND ts < ends
    WHERE
        matches(model, getvariable('model'))
        AND matches(replica, getvariable('replica'))
        AND matches(route, getvariable('route'))
        AND matches(template, getvariable('template'))
        AND matches(tenant, getvariable('tenant'))
    GROUP BY ALL
),

row_ttft AS (
    SELECT week, requests, p90_seconds, ttft_point
    FROM timed
    WHERE ttft_point = (SELECT arg_max(ttft_point, requests) FROM timed WHERE week = 0)
),

-- Pages: cumulative counts are added up where the bounds are the same, then taken apart.
cumulative AS (
    SELECT week, replica, engine, version, bound.key AS upper, sum(bound.value) AS up_to
    FROM (
        SELECT week, replica, engine, version, unnest(map_entries(ttft_buckets)) AS bound
        FROM engine_traffic
        JOIN windows ON ts > begins AND ts <= ends
        WHERE
            ttft_buckets IS NOT NULL
            AND coalesce(
                getvariable('route'), getvariable('template'), getvariable('tenant')
            ) IS NULL
            AND matches(model, getvariable('model'))
            AND matches(replica, getvariable('replica'))
    )
    GROUP BY ALL
),

buckets AS (
    SELECT
        week, upper,
        coalesce(lag(upper) OVER bounds, 0) AS lower,
        up_to - coalesce(lag(up_to) OVER bounds, 0) AS requests
    FROM cumulative
    WINDOW bounds AS (PARTITION BY week, replica, engine, version ORDER BY upper)
),

ranked AS (
    SELECT
        week, lower, upper, sum(requests) AS requests,
        sum(sum(requests)) OVER (PARTITION BY week ORDER BY upper, lower) AS up_to,
        sum(sum(requests)) OVER (PARTITION BY week) AS all_requests
    FROM buckets
    GROUP BY week, lower, upper
),

page_ttft AS (
    SELECT
        week, any_value(all_requests) AS requests,
        arg_min(
            CASE
                WHEN isinf(upper) THEN lower
                ELSE upper - (upper - lower) * (up_to - 0.9 * all_requests) / requests
            END,
            up_to
        ) AS p90_seconds,
        'histogram' AS ttft_point
    FROM ranked
    WHERE requests > 0 AND up_to >= 0.9 * all_requests
    GROUP BY week
),

ttft AS (
    FROM row_ttft
    UNION ALL BY NAME
    FROM page_ttft WHERE NOT EXISTS (FROM row_ttft)
),

ttft_now AS (
    SELECT
        max(p90_seconds) FILTER (week = 0) AS p90_seconds,
        median(p90_seconds) FILTER (week > 0) AS usual_p90_seconds,
        count(*) FILTER (week > 0) AS weeks,
        max(requests) FILTER (week = 0) AS requests,
        max(ttft_point) FILTER (week = 0) AS ttft_point
    FROM ttft
),

-- Prefill, by clock hour for the peak.
logged AS (
    SELECT
        time_bucket(INTERVAL 1 HOUR, ts) AS hour,
        reported_prompt_tokens - cached_tokens AS computed_tokens,
        CASE WHEN ts >= begins AND ts < ends THEN computed_tokens END AS computed_now
    FROM traffic, (FROM windows WHERE week = 0)
    WHERE
        answers(
            kept_as,
            CASE
                WHEN coalesce(getvariable('template'), getvariable('tenant')) IS NOT NULL
                    THEN 'template'
            END,
            getvariable('replica')
        )
        AND reported_prompt_tokens > 0
        AND ts >= begins - INTERVAL 28 DAY AND ts < ends
        AND matches(model, getvariable('model'))
        AND matches(replica, getvariable('replica'))
        AND matches(route, getvariable('route'))
        AND matches(template, getvariable('template'))
        AND matches(tenant, getvariable('tenant'))
),

told AS (
    SELECT
        coalesce(since, ts) AS since, ts, begins, ends,
        date_trunc('hour', coalesce(since, ts)) AS first_hour,
        date_trunc('hour', ts - INTERVAL 1 MICROSECOND) AS last_hour,
        CASE
            WHEN caching_off THEN prompt_tokens
            ELSE reported_prompt_tokens - reported_cached_tokens
        END AS computed_tokens
    FROM engine_traffic, (FROM windows WHERE week = 0)
    WHERE
        coalesce(getvariable('route'), getvariable('template'), getvariable('tenant')) IS NULL
        AND ts > begins - INTERVAL 28 DAY AND coalesce(since, ts) < ends
        AND matches(model, getvariable('model'))
        AND matches(replica, getvariable('replica'))
),

-- An interval across a full hour is spread: after an outage it may hold the work of a night.
paged AS (
    SELECT
        hour,
        computed_tokens * overlap_share(since, ts, hour, hour + INTERVAL 1 HOUR)
            AS computed_tokens,
        CASE
            WHEN ts > begins THEN computed_tokens * nullif(overlap_share(
                since, ts, greatest(hour, begins), least(hour + INTERVAL 1 HOUR, ends)
            ), 0)
        END AS computed_now
    FROM (
        SELECT *, last_hour AS hour FROM told WHERE first_hour >= last_hour
        UNION ALL
        SELECT *, unnest(generate_series(first_hour, last_hour, INTERVAL 1 HOUR))
        FROM told WHERE first_hour < last_hour
    )
    WHERE computed_tokens IS NOT NULL
),

worked AS (
    SELECT 'log' AS basis, * FROM logged
    UNION ALL
    SELECT 'engine' AS basis, * FROM paged
),

hours AS (
    SELECT
        basis, hour,
        sum(computed_tokens) AS computed_tokens,
        sum(computed_now) AS computed_now
    FROM worked
    GROUP BY ALL
),

work AS (
    SELECT
        basis,
        sum(computed_now) AS computed_now,
        -- Hours the window reaches into are no past.
        max(computed_tokens) FILTER (computed_now IS NULL) AS most_computed_tokens,
        arg_max(hour, computed_tokens) FILTER (computed_now IS NULL) AS peak_hour
    FROM hours
    GROUP BY basis
    HAVING computed_now IS NOT NULL
),

-- Where watching began within the window, the time before it is no time without work.
watched AS (
    SELECT
        basis,
        greatest(epoch(ends) - epoch(greatest(begins, began)), least(epoch(ends) - epoch(begins), 60))
            AS seconds
    FROM (
        SELECT 'log' AS basis, min(ts) AS began FROM requests
        UNION ALL
        SELECT 'engine' AS basis, min(ts) AS began FROM engine_samples
    ), (FROM windows WHERE week = 0)
)

SELECT
    p90_seconds AS ttft_p90_seconds,
    usual_p90_seconds AS usual_ttft_p90_seconds,
    weeks AS ttft_weeks,
    requests::BIGINT AS ttft_requests,
    ttft_point,
    computed_now / seconds AS computed_tokens_per_second,
    most_computed_tokens / 3600 AS peak_computed_tokens_per_second,
    peak_hour,
    basis AS computed_basis
FROM ttft_now
LEFT JOIN (FROM work JOIN watched USING (basis) ORDER BY basis DESC LIMIT 1) ON true;
