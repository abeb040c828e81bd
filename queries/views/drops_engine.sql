-- Drops by engine counters alone: what replicas counted in the windows and in their weeks, and by
-- hour. The same names as in drops.sql; routes, templates and tenants are not told apart.

-- What dimension counters are asked along, '' where they are not; NULL = they cannot tell.
CREATE OR REPLACE MACRO drop_engine_value(dimension, model, replica) AS
    CASE
        WHEN dimension IS NULL THEN ''
        WHEN dimension = 'model' THEN model
        WHEN dimension = 'replica' THEN replica
    END;

-- Samples of the windows and of their weeks, with the share of each that lies in the window.
CREATE OR REPLACE MACRO drop_shares(
    since_border, until_border, window_seconds, zone, wanted_model
) AS TABLE
SELECT
    place, windows.week, begins, ends, samples.*,
    overlap_share(samples.since, ts, begins, ends) AS share
FROM engine_traffic AS samples
JOIN drop_spans(since_border, until_border, window_seconds, zone) AS spans
    ON coalesce(samples.since, ts) < last_end AND ts >= first_begin
JOIN drop_windows(since_border, until_border, window_seconds, zone) AS windows
    ON windows.week = spans.week AND coalesce(samples.since, ts) < ends AND ts >= begins
WHERE matches(model, wanted_model);

-- By window, week, model, replica and the value it belongs to. Prompts that the cache was not asked
-- for (it is off, or nothing was looked up) are unasked and not reported.
CREATE OR REPLACE MACRO drop_replicas(
    dimension, since_border, until_border, window_seconds, zone, wanted_model
) AS TABLE
WITH sums AS (
    SELECT
        place, week, model, replica,
        bool_or(caching_off) OR (
            coalesce(sum(lookup_tokens * share) = 0, false)
            AND coalesce(sum(cached_tokens * share), 0) = 0
        ) AS unasked,
        sum(coalesce(prompt_tokens, reported_prompt_tokens) * share) AS prompt_tokens,
        -- Look-ups after preemption exceed the prompts: what is counted is a share of its own kind.
        sum(coalesce(reported_prompt_tokens, prompt_tokens) * share) AS eligible_tokens,
        sum(reported_prompt_tokens * share) AS reported_tokens,
        sum(reported_cached_tokens * share) AS cached_tokens,
        sum(finished_requests * share) AS requests,
        -- A page may tell tenants apart; its time is one all the same.
        sum(epoch(ts - since) * share) FILTER (tenant IS NULL AND route IS NULL) AS read_seconds,
        avg(kv_capacity_tokens) AS capacity_tokens,
        arg_max_null(version, ts) AS version
    FROM drop_shares(since_border, until_border, window_seconds, zone, wanted_model)
    GROUP BY ALL
)

SELECT
    * EXCLUDE (reported_tokens, cached_tokens),
    drop_engine_value(dimension, model, replica) AS value,
    CASE WHEN unasked THEN 0 ELSE coalesce(round(reported_tokens), 0) END::BIGINT
        AS reported_tokens,
    -- More cached than asked for has no meaning and no figure.
    CASE
        WHEN unasked THEN 0
        ELSE coalesce(round(counter_ratio(cached_tokens, reported_tokens) * reported_tokens), 0)
    END::BIGINT AS cached_tokens
FROM sums
WHERE unasked OR cached_tokens IS NULL OR counter_ratio(cached_tokens, reported_tokens) IS NOT NULL
    OR coalesce(reported_tokens, 0) = 0;

-- The engines' own time to first token (p90, interpolated within its bucket; the last finite bound
-- where it lies beyond), by window, week and model.
CREATE OR REPLACE MACRO drop_first_tokens(
    since_border, until_border, window_seconds, zone, wanted_model
) AS TABLE
WITH selected AS (
    SELECT
        place, week, model, replica, engine, version, share, unnest(map_entries(ttft_buckets)) AS bound
    FROM drop_shares(since_border, until_border, window_seconds, zone, wanted_model)
    WHERE ttft_buckets IS NOT NULL AND share > 0
),

-- Counts are cumulative: add them up per process first, where the bounds are the same.
cumulative AS (
    SELECT * EXCLUDE (bound, share), bound.key AS upper, sum(bound.value * share) AS up_to
    FROM selected
    GROUP BY ALL
),

buckets AS (
    SELECT
        place, week, model, upper, coalesce(lag(upper) OVER bounds, 0) AS lower,
        up_to - coalesce(lag(up_to) OVER bounds, 0) AS requests
    FROM cumulative
    WINDOW bounds AS (
        PARTITION BY place, week, model, replica, engine, version ORDER BY upper
    )
),

ranked AS (
    SELECT
        place, week, model, upper, lower, sum(requests) AS requests,
        sum(sum(requests)) OVER (all_bounds ORDER BY upper, lower) AS up_to,
        sum(sum(requests)) OVER all_bounds AS all_requests
    FROM buckets
    GROUP BY place, week, model, upper, lower
    WINDOW all_bounds AS (PARTITION BY place, week, model)
)

SELECT
    place, week, model,
    arg_min(
        CASE
            WHEN isinf(upper) THEN lower
            ELSE upper - (upper - lower) * (up_to - 0.9 * all_requests) / requests
        END,
        up_to
    ) AS engine_ttft_seconds
FROM ranked
WHERE requests > 0 AND up_to >= 0.9 * all_requests
GROUP BY ALL;

-- By hour, model and value, as drop_logged_hours. An interval across the full hour is spread.
CREATE OR REPLACE MACRO drop_engine_hours(
    dimension, since_border, until_border, wanted_model
) AS TABLE
WITH stepped AS (
    SELECT
        drop_engine_value(dimension, model, replica) AS value,
        model, coalesce(since, ts) AS since, ts,
        reported_prompt_tokens, reported_cached_tokens, kv_usage_ratio,
        unnest(generate_series(
            date_trunc('hour', coalesce(since, ts)), date_trunc('hour', ts), INTERVAL 1 HOUR
        )) AS hour
    FROM engine_traffic
    WHERE
        ts >= since_border AND ts < until_border AND NOT caching_off
        AND matches(model, wanted_model)
)

SELECT
    hour, model, value,
    known_total(reported_prompt_tokens * share) AS reported_tokens,
    known_total(reported_cached_tokens * share) AS cached_tokens,
    avg(kv_usage_ratio) FILTER (hour = date_trunc('hour', ts - INTERVAL 1 MICROSECOND))
        AS usage_ratio
FROM (SELECT *, overlap_share(since, ts, hour, hour + INTERVAL 1 HOUR) AS share FROM stepped)
WHERE value IS NOT NULL
GROUP BY ALL
HAVING cached_tokens <= 1.02 * reported_tokens;
