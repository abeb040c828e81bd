-- What the questions about drops share: windows and the same hours of the weeks before, what
-- happened in each, and how ratios have moved with load and by chance. A "window" is named by its
-- `place`, 0 = the last one; `week` 0 is the window itself, 1 to 4 the same local hours before it.

CREATE OR REPLACE MACRO local_time(moment, zone) AS timezone(zone, moment AT TIME ZONE 'UTC');
CREATE OR REPLACE MACRO utc_time(local_moment, zone) AS
    timezone('UTC', local_moment AT TIME ZONE zone);
CREATE OR REPLACE MACRO a_week_before(moment, zone) AS
    utc_time(local_time(moment, zone) - INTERVAL 7 DAYS, zone);

-- Windows are laid backwards from the end; where none is given from the newest request, or page of
-- an engine where nothing is logged. Weeks are stepped in local time, so that the same hours are
-- compared when the clocks change. Six more lie before those that are asked for, because a drop may
-- go on from them.
CREATE OR REPLACE MACRO drop_windows(since_border, until_border, window_seconds, zone) AS TABLE
WITH last AS (
    SELECT coalesce(
        until_border::TIMESTAMP,
        (SELECT max(ts) + INTERVAL 1 MICROSECOND FROM requests),
        (SELECT max(ts) + INTERVAL 1 MICROSECOND FROM engine_own)
    ) AS moment
),

asked AS (
    SELECT
        moment,
        greatest(
            1,
            ceil(epoch(moment - coalesce(since_border::TIMESTAMP, moment)) / window_seconds)
        )::BIGINT AS windows
    FROM last
    WHERE moment IS NOT NULL
),

places AS (
    SELECT moment, unnest(range(windows + 6)) AS place, place < windows AS is_asked
    FROM asked
)

SELECT
    place, week, is_asked,
    utc_time(
        local_time(moment - to_seconds(place * window_seconds), zone)
        - to_days((7 * week)::INTEGER),
        zone
    ) AS ends,
    ends - to_seconds(window_seconds) AS begins
FROM places, range(5) AS weeks (week);

-- What dimension a question is asked along, '' where it is not; the same for rows and roll-ups. Of
-- replicas only counters tell: roll-ups by the hour do not keep them.
CREATE OR REPLACE MACRO drop_value(dimension, model, route, template, tenant) AS
    CASE
        WHEN dimension IS NULL THEN ''
        WHEN dimension = 'model' THEN coalesce(model, '')
        WHEN dimension = 'route' THEN coalesce(route, '')
        WHEN dimension = 'template' THEN coalesce(template, '')
        WHEN dimension = 'tenant' THEN coalesce(tenant, '')
        WHEN dimension = 'replica' THEN NULL
        ELSE error('unknown dimension ' || dimension)
    END;

-- From where to where the windows of one week reach: few rows, to keep the joins with windows small.
CREATE OR REPLACE MACRO drop_spans(since_border, until_border, window_seconds, zone) AS TABLE
SELECT week, min(begins) AS first_begin, max(ends) AS last_end
FROM drop_windows(since_border, until_border, window_seconds, zone)
GROUP BY week;

-- Whether a moment can lie in a window so many weeks before; what is left is joined exactly. Borders
-- that are given are constants, so that a scan skips the rows of all other hours. Clocks change by
-- less than three hours.
CREATE OR REPLACE MACRO near_drop_windows(
    moment, since_border, until_border, window_seconds, weeks
) AS
    moment >= since_border::TIMESTAMP - to_days(7 * weeks) - to_seconds(7 * window_seconds)
        - INTERVAL 3 HOUR
    AND moment < until_border::TIMESTAMP - to_days(7 * weeks) + INTERVAL 3 HOUR;

-- Requests of the windows and of their weeks. `moved`: the session's request before it, within the
-- window, was served by another replica; unknown without a session.
CREATE OR REPLACE MACRO drop_requests(
    dimension, since_border, until_border, window_seconds, zone,
    wanted_model, wanted_route, wanted_template, wanted_tenant
) AS TABLE
SELECT
    place, windows.week,
    coalesce(model, '') AS model,
    drop_value(dimension, model, route, template, tenant) AS value,
    coalesce(template, '') AS template, template_version, session, turn, scope,
    model_fingerprint,
    CASE
        WHEN session IS NOT NULL
            THEN replica <> lag(replica) OVER (
                PARTITION BY place, windows.week, model, session ORDER BY ts, position
            )
    END AS moved,
    CASE WHEN ineligible_reason IS NULL THEN prompt_tokens END AS eligible_tokens,
    CASE
        WHEN is_reported(prompt_tokens, cached_tokens, ineligible_reason) THEN prompt_tokens
    END AS reported_tokens,
    CASE WHEN reported_tokens IS NOT NULL THEN cached_tokens END AS cached_tokens,
    ttft_seconds, coalesce(ttft_point, '') AS ttft_point
FROM requests
JOIN drop_spans(since_border, until_border, window_seconds, zone) AS spans
    ON ts >= first_begin AND ts < last_end
ASOF JOIN drop_windows(since_border, until_border, window_seconds, zone) AS windows
    ON windows.week = spans.week AND ts >= windows.begins
WHERE
    ts < windows.ends
    AND replica_role IS DISTINCT FROM 'decode'
    AND matches(coalesce(model, ''), wanted_model)
    AND matches(coalesce(route, ''), wanted_route)
    AND matches(coalesce(template, ''), wanted_template)
    AND matches(coalesce(tenant, ''), wanted_tenant)
    AND dimension IS DISTINCT FROM 'replica'
    AND (
        since_border IS NULL OR until_border IS NULL
        OR near_drop_windows(ts, since_border, until_border, window_seconds, 0)
        OR near_drop_windows(ts, since_border, until_border, window_seconds, 1)
        OR near_drop_windows(ts, since_border, until_border, window_seconds, 2)
        OR near_drop_windows(ts, since_border, until_border, window_seconds, 3)
        OR near_drop_windows(ts, since_border, until_border, window_seconds, 4)
    );

-- What engines' pages said in the same windows and weeks, by replica, and how often its cache was
-- lost: the process began anew, slept, or told of a clear by its events.
CREATE OR REPLACE MACRO drop_pages(
    since_border, until_border, window_seconds, zone, wanted_model
) AS TABLE
WITH told AS (
    SELECT
        ts, coalesce(model, '') AS model, replica, kv_usage_ratio,
        reset::BIGINT AS resets, coalesce(NOT awake, false) AS asleep
    FROM engine_own
    WHERE role <> 'decode'
    UNION ALL
    SELECT DISTINCT ts, coalesce(model, told_model, ''), replica, NULL, 1, false
    FROM block_resets
    LEFT JOIN told_models USING (replica)
    WHERE reason = 'clear'
)

SELECT
    place, windows.week, model, replica,
    sum(kv_usage_ratio) AS usage_sum, count(kv_usage_ratio) AS usage_samples,
    total(resets) + bool_or(asleep)::BIGINT AS resets
FROM told
JOIN drop_spans(since_border, until_border, window_seconds, zone) AS spans
    ON ts > first_begin AND ts <= last_end
ASOF JOIN drop_windows(since_border, until_border, window_seconds, zone) AS windows
    ON windows.week = spans.week AND ts > windows.begins
WHERE ts <= windows.ends AND matches(model, wanted_model)
GROUP BY ALL;

-- What the log said by hour, model and value, and the KV usage of the model.
CREATE OR REPLACE MACRO drop_logged_hours(
    dimension, since_border, until_border,
    wanted_model, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH logged AS (
    SELECT
        hour, coalesce(model, '') AS model,
        drop_value(dimension, model, route, template, tenant) AS value,
        total(reported_prompt_tokens) AS reported_tokens,
        total(cached_tokens) AS cached_tokens
    FROM hour_rollup
    WHERE
        hour >= since_border AND hour < until_border
        AND matches(coalesce(model, ''), wanted_model)
        AND matches(coalesce(route, ''), wanted_route)
        AND matches(coalesce(template, ''), wanted_template)
        AND matches(coalesce(tenant, ''), wanted_tenant)
        AND dimension IS DISTINCT FROM 'replica'
    GROUP BY ALL
),

used AS (
    SELECT
        date_trunc('hour', ts) AS hour, coalesce(model, '') AS model,
        avg(kv_usage_ratio) AS usage_ratio
    FROM engine_own
    WHERE ts >= since_border AND ts < until_border AND role <> 'decode'
    GROUP BY ALL
)

FROM logged LEFT JOIN used USING (hour, model);

-- How far a ratio of so much traffic strays by chance from an earlier one: squared difference x
-- harmonic tokens.
CREATE OR REPLACE MACRO drop_stray(cached, reported, cached_before, reported_before) AS
    CASE
        WHEN reported > 0 AND reported_before > 0 THEN
            pow(cached / reported - cached_before / reported_before, 2)
            / (1 / reported + 1 / reported_before)
    END;

-- A ratio in words.
CREATE OR REPLACE MACRO percent_text(share) AS format('{:.0f} %', 100 * share);
