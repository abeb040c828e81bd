-- Drops for the question `alerts`, as peak_drop judges them; a page is no ticket too. Beside what is in
-- evidence stands which causes of missed tokens grew since the same window of the week before.

-- Since when: as queries/on_call/onset.py. Of the last six windows the unbroken stretch up to the end
-- in which more tokens were lost, against halfway between the expected ratio and the present one,
-- than were won back: it begins behind the last low of their running sum. What the exporter kept
-- of a drop that it still sees goes before that, because it may be longer.
CREATE OR REPLACE MACRO alert_drops(
    dimension, asked_at, window_seconds, zone, least_tokens, least_requests, wanted_model
) AS TABLE
WITH judged AS MATERIALIZED (
    FROM judged_drops(
        dimension, asked_at - to_seconds(6 * window_seconds), asked_at, window_seconds, zone,
        least_tokens, least_requests,
        wanted_model, NULL::VARCHAR, NULL::VARCHAR, NULL::VARCHAR
    )
),

-- How many windows without a break were drops, back from the last, whose place is 0.
lasting AS (
    SELECT
        basis, model, value,
        coalesce(min(place) FILTER (is_drop IS NOT TRUE), max(place) + 1) AS places
    FROM judged
    GROUP BY ALL
),

-- What gave no name is told of as the model.
dropped AS (
    FROM judged
    WHERE place = 0 AND is_drop AND (dimension IS NULL OR value <> '')
),

steps AS (
    SELECT basis, model, value, minute, sum(reported) AS reported, sum(cached) AS cached
    FROM (
        SELECT
            'log' AS basis, model, drop_value(dimension, model, route, template, tenant) AS value,
            time_bucket(INTERVAL 1 MINUTE, ts) AS minute,
            reported_prompt_tokens AS reported, cached_tokens AS cached
        FROM traffic
        WHERE
            kept_as = 'row' AND ts < asked_at
            AND ts >= asked_at - to_seconds(6 * window_seconds)
        UNION ALL
        SELECT
            'engine', model, '', time_bucket(INTERVAL 1 MINUTE, coalesce(since, ts)),
            reported_prompt_tokens, reported_cached_tokens
        FROM engine_traffic
        WHERE
            dimension IS NULL AND NOT caching_off AND ts <= asked_at
            AND ts >= asked_at - to_seconds(6 * window_seconds)
    )
    GROUP BY ALL
    HAVING sum(reported) > 0
),

sums AS (
    SELECT
        basis, model, value, minute,
        sum((judged.expected_ratio + dropped.token_hit_ratio) / 2 * steps.reported - steps.cached)
            OVER (PARTITION BY basis, model, value ORDER BY minute) AS lost
    FROM dropped
    JOIN steps USING (basis, model, value)
    JOIN judged USING (basis, model, value)
    WHERE
        dropped.class <> 'telemetry' AND judged.expected_ratio IS NOT NULL
        AND minute >= judged.ts AND minute < judged.ts + to_seconds(window_seconds)
),

onsets AS (
    SELECT
        basis, model, value,
        min(minute) FILTER (minute > coalesce(low, TIMESTAMP '-infinity')) AS since
    FROM (
        SELECT
            *,
            max(CASE WHEN lost = least AND least <= 0 THEN minute END)
                OVER (PARTITION BY basis, model, value) AS low
        FROM (SELECT *, min(lost) OVER (PARTITION BY basis, model, value) AS least FROM sums)
    )
    GROUP BY ALL
),

kept AS (
    SELECT
        basis, model, drop_value(dimension, '', route, template, tenant) AS value, since
    FROM open_drops
    WHERE
        judged > asked_at - INTERVAL 5 MINUTE AND judged < asked_at + INTERVAL 5 MINUTE
        AND (route <> '', template <> '', tenant <> '')
            = (dimension IS NOT DISTINCT FROM 'route', dimension IS NOT DISTINCT FROM 'template',
               dimension IS NOT DISTINCT FROM 'tenant')
),

grown AS (
    SELECT model, value, string_agg(evidence, ', ' ORDER BY change_ratio DESC, cause) AS causes
    FROM missed_changes(
        dimension, true,
        a_week_before(asked_at, zone) - to_seconds(window_seconds), a_week_before(asked_at, zone),
        asked_at - to_seconds(window_seconds), asked_at,
        wanted_model, NULL::VARCHAR, NULL::VARCHAR, NULL::VARCHAR, NULL::VARCHAR
    )
    WHERE is_evidence
    GROUP BY ALL
)

SELECT
    CASE WHEN severity = 'page' THEN 'PrefixcachePeakHitDrop' ELSE 'PrefixcacheHitDrop' END AS alert,
    model,
    CASE WHEN dimension = 'route' THEN value END AS route,
    CASE WHEN dimension = 'template' THEN value END AS template,
    CASE WHEN dimension = 'tenant' THEN value END AS tenant,
    basis AS subject,
    coalesce(
        kept.since, onsets.since, asked_at - to_seconds(places * window_seconds)
    ) AS since,
    drop_ratio AS value,
    concat(
        'token hit ratio ',
        coalesce(
            percent_text(token_hit_ratio) || ' where ' || percent_text(expected_ratio)
            || ' is expected',
            'not known'
        ),
        CASE WHEN basis = 'engine' THEN ' (engine counters)' END,
        '; class: ', class, coalesce(', ' || evidence, ''),
        coalesce('; most lost by ' || contributor, ''),
        -- Without counts there is no finding about the cache.
        CASE WHEN class <> 'telemetry' THEN '; missed tokens against a week before: ' || causes END,
        CASE
            WHEN history_weeks = 1 THEN '; 1 week of history'
            WHEN history_weeks < 4 THEN format('; {} weeks of history', history_weeks)
        END,
        '.'
    ) AS description
FROM dropped
JOIN lasting USING (basis, model, value)
LEFT JOIN onsets USING (basis, model, value)
LEFT JOIN kept USING (basis, model, value)
LEFT JOIN grown USING (model, value);
