-- Two accounts of the same traffic side by side, and what tells why they differ. Runs after
-- usage.sql.

-- Spans of reports in a window of UTC days. A report without models is compared as a whole.
CREATE OR REPLACE MACRO reported_spans(since_border, until_border) AS TABLE
SELECT
    reporter, provider, utc_day, span_since, span_until,
    bool_and(settled) AS settled,
    NOT bool_or(bool_and(settled)) OVER (PARTITION BY reporter, provider, utc_day) AS day_open,
    bool_or(bool_or(reported_model = '' AND prompt_tokens > 0))
        OVER (PARTITION BY reporter, provider, utc_day) AS ungrouped,
    max(read_at) AS read_at
FROM reported_usage
WHERE in_window(utc_day, since_border, until_border)
GROUP BY reporter, provider, utc_day, span_since, span_until;

-- From a day before those spans to a day after, to see our rows begin, pause and end.
CREATE OR REPLACE MACRO near_since(since_border, until_border) AS coalesce((
    SELECT min(span_since) - INTERVAL 1 DAY FROM reported_usage
    WHERE in_window(utc_day, since_border, until_border)
), TIMESTAMP 'infinity');
CREATE OR REPLACE MACRO near_until(since_border, until_border) AS coalesce((
    SELECT max(span_until) + INTERVAL 1 DAY FROM reported_usage
    WHERE in_window(utc_day, since_border, until_border)
), TIMESTAMP '-infinity');

-- Our sums near those spans, as fine as their borders need. Every row has its provider.
CREATE OR REPLACE MACRO own_usage_near(since_border, until_border) AS TABLE
SELECT own.* REPLACE (coalesce(own.provider, owner) AS provider)
FROM own_usage(
    near_since(since_border, until_border), near_until(since_border, until_border),
    (
        SELECT CASE
            WHEN bool_and(span_since = date_trunc('hour', span_since)
                AND span_until = date_trunc('hour', span_until)) THEN 'hour'
            ELSE 'minute'
        END
        FROM reported_usage WHERE in_window(utc_day, since_border, until_border)
    )
) AS own
LEFT JOIN model_owners USING (model)
WHERE coalesce(own.provider, owner) IS NOT NULL;

-- One row per reporter, UTC day, provider and model key: their sums and ours over the settled
-- buckets of the day (over all of them while none is settled).
CREATE OR REPLACE MACRO usage_sides(since_border, until_border) AS TABLE
WITH spans AS (FROM reported_spans(since_border, until_border)),

bins AS MATERIALIZED (FROM own_usage_near(since_border, until_border)),

their_days AS (
    SELECT
        r.reporter, r.provider, r.utc_day, CASE WHEN ungrouped THEN '' ELSE r.model END AS model,
        string_agg(
            DISTINCT nullif(reported_model, ''), ', ' ORDER BY nullif(reported_model, '')
        ) AS their_models,
        known_total(requests) AS their_requests,
        total(prompt_tokens) AS their_prompt,
        known_total(cached_tokens) AS their_cached,
        known_total(cache_write_tokens) AS their_written
    FROM reported_usage AS r
    JOIN spans AS s USING (reporter, provider, utc_day, span_since)
    WHERE s.settled OR s.day_open
    GROUP BY ALL
    -- A bucket in which nothing was used is no model.
    HAVING their_models IS NOT NULL OR their_prompt > 0
),

own_days AS (
    SELECT
        b.reporter, s.provider, s.utc_day, CASE WHEN s.ungrouped THEN '' ELSE b.model END AS model,
        string_agg(DISTINCT own_model, ', ' ORDER BY own_model) AS our_models,
        bool_or(kept_as = 'hour') AS rolled_up,
        total(requests) AS our_requests, total(prompt_tokens) AS our_prompt,
        known_total(cached_tokens) AS our_cached, known_total(written_tokens) AS our_written,
        total(repeat_prompt) AS repeat_prompt, total(repeat_cached) AS repeat_cached,
        total(repeat_written) AS repeat_written, total(repeat_requests) AS repeat_requests,
        total(failed_prompt) AS failed_prompt, total(failed_cached) AS failed_cached,
        total(failed_written) AS failed_written, total(failed_requests) AS failed_requests,
        total(stored_requests) AS stored_requests, total(blank_requests) AS blank_requests,
        total(unreported_prompt) AS unreported_prompt, total(unwritten_prompt) AS unwritten_prompt
    FROM (
        FROM bins
        JOIN (SELECT DISTINCT reporter, provider FROM spans) USING (provider)
    ) AS b
    ASOF JOIN spans AS s
        ON b.reporter = s.reporter AND b.provider = s.provider AND b.bin_since >= s.span_since
    WHERE b.bin_since < s.span_until AND (s.settled OR s.day_open)
    GROUP BY ALL
),

days AS (
    SELECT
        reporter, provider, utc_day,
        bool_and(day_open) AS day_open,
        count(*) FILTER (NOT settled) AS open_buckets,
        sum(epoch(span_until - span_since)) FILTER (settled OR day_open)::BIGINT
            AS compared_seconds,
        min(span_since) FILTER (settled OR day_open) AS compared_since,
        max(span_until) FILTER (settled OR day_open) AS compared_until,
        max(read_at) AS read_at
    FROM spans GROUP BY ALL
),

ends AS (
    SELECT provider, min(bin_since) AS our_first, max(bin_until) AS our_last
    FROM bins GROUP BY ALL
),

-- Where the next day begins as late, and the day before ends as early, it is quiet then.
reach AS (
    SELECT
        provider, our_first, our_last,
        min(bin_since) FILTER (
            bin_since >= date_trunc('day', our_first) + INTERVAL 1 DAY
            AND bin_since < date_trunc('day', our_first) + INTERVAL 2 DAY
        ) >= our_first + INTERVAL 1410 MINUTE AS begins_as_usual,
        max(bin_until) FILTER (
            bin_until <= date_trunc('day', our_last)
            AND bin_until > date_trunc('day', our_last) - INTERVAL 1 DAY
        ) <= our_last - INTERVAL 1410 MINUTE AS ends_as_usual
    FROM ends JOIN bins USING (provider)
    GROUP BY provider, our_first, our_last
)

SELECT
    *, sum(our_requests) OVER (PARTITION BY reporter, provider, utc_day) AS our_requests_that_day
FROM their_days
FULL JOIN own_days USING (reporter, provider, utc_day, model)
JOIN days USING (reporter, provider, utc_day)
LEFT JOIN reach USING (provider);

-- Pauses of half an hour and more in the rows of a provider between busy times (ten requests and
-- more would have come), with the tokens of each model that the hours around them let expect. Not
-- those that are usual: about as long as nine in ten pauses, or at the same time every day.
CREATE OR REPLACE MACRO usage_gaps(since_border, until_border) AS TABLE
WITH bins AS MATERIALIZED (
    SELECT coalesce(provider, owner) AS provider, model, bin_since, bin_until, requests,
        prompt_tokens
    FROM own_pace(near_since(since_border, until_border), near_until(since_border, until_border))
    LEFT JOIN model_owners USING (model)
    WHERE coalesce(provider, owner) IS NOT NULL
),

paces AS (
    SELECT
        provider, bin_since, max(bin_until) AS bin_until,
        sum(sum(requests)) OVER (
            PARTITION BY provider ORDER BY bin_since
            RANGE BETWEEN INTERVAL 59 MINUTE PRECEDING AND CURRENT ROW
        ) AS hour_before,
        sum(sum(requests)) OVER (
            PARTITION BY provider ORDER BY bin_since
            RANGE BETWEEN CURRENT ROW AND INTERVAL 59 MINUTE FOLLOWING
        ) AS hour_after
    FROM bins GROUP BY provider, bin_since
),

pauses AS (
    SELECT
        provider,
        lag(bin_until) OVER provider_rows AS gap_since,
        bin_since AS gap_until,
        epoch(gap_until - gap_since) AS gap_seconds,
        least(lag(hour_before) OVER provider_rows, hour_after) AS hourly_requests
    FROM paces
    WINDOW provider_rows AS (PARTITION BY provider ORDER BY bin_since)
    QUALIFY gap_seconds > 0
),

long_pauses AS (
    SELECT *
    FROM pauses
    JOIN (
        SELECT provider, quantile_cont(gap_seconds, 0.9) AS usual_seconds
        FROM pauses GROUP BY provider
    ) USING (provider)
    JOIN (
        SELECT provider, min(bin_since) AS first_bin, max(bin_until) AS last_bin
        FROM bins GROUP BY provider
    ) USING (provider)
    WHERE
        gap_seconds >= 1800 AND hourly_requests * gap_seconds / 3600 >= 10
        -- The pause itself may be the one in ten.
        AND (gap_seconds >= 1.5 * usual_seconds OR usual_seconds >= 1800 AND (
            SELECT count(*) FROM pauses AS p
            WHERE p.provider = pauses.provider AND p.gap_seconds >= 0.5 * pauses.gap_seconds
        ) <= 3)
),

gaps AS (
    SELECT provider, gap_since, gap_until
    FROM long_pauses AS p
    WHERE
        (first_bin > gap_since - INTERVAL 24 HOUR AND last_bin < gap_until + INTERVAL 24 HOUR)
        OR EXISTS (
            FROM bins AS b
            WHERE b.provider = p.provider AND (
                (b.bin_since >= p.gap_since - INTERVAL 24 HOUR
                    AND b.bin_since < p.gap_until - INTERVAL 24 HOUR)
                OR (b.bin_since >= p.gap_since + INTERVAL 24 HOUR
                    AND b.bin_since < p.gap_until + INTERVAL 24 HOUR)
            )
        )
),

-- Of the hour before and the hour after, per hour.
expected AS (
    SELECT provider, gap_since, gap_until, model, sum(prompt_tokens) / 2 AS hourly_tokens
    FROM gaps JOIN bins USING (provider)
    WHERE
        bin_since >= gap_since - INTERVAL 1 HOUR AND bin_since < gap_until + INTERVAL 1 HOUR
    GROUP BY ALL
)

SELECT
    reporter, provider, utc_day, CASE WHEN ungrouped THEN '' ELSE model END AS model,
    round(sum(
        hourly_tokens
        * epoch(least(gap_until, span_until) - greatest(gap_since, span_since)) / 3600
    ))::BIGINT AS gap_tokens,
    string_agg(
        DISTINCT strftime(gap_since, '%H:%M') || ' to ' || strftime(gap_until, '%H:%M'), ', '
    ) AS gap_times
FROM expected
JOIN reported_spans(since_border, until_border) USING (provider)
WHERE gap_since < span_until AND gap_until > span_since AND settled
GROUP BY ALL;

-- Our prompt tokens of days that begin 1 to 14 hours later, or 1 to 12 earlier (`shift_hours` < 0).
CREATE OR REPLACE MACRO usage_shifts(since_border, until_border) AS TABLE
WITH spans AS (
    FROM reported_spans(since_border, until_border)
    WHERE settled AND span_until - span_since = INTERVAL 24 HOUR
),

hours AS MATERIALIZED (
    SELECT provider, model, date_trunc('hour', bin_since) AS hour, sum(prompt_tokens) AS tokens
    FROM own_usage_near(since_border, until_border) GROUP BY ALL
)

SELECT
    h.reporter, h.provider, s.utc_day, shift_hours,
    CASE WHEN s.ungrouped THEN '' ELSE h.model END AS model,
    sum(tokens)::BIGINT AS shifted_prompt
FROM (
    FROM hours
    JOIN (SELECT DISTINCT reporter, provider FROM spans) USING (provider)
    CROSS JOIN (SELECT unnest(range(-12, 15)) AS shift_hours)
    WHERE shift_hours <> 0
) AS h
ASOF JOIN spans AS s
    ON h.reporter = s.reporter AND h.provider = s.provider
    AND h.hour - to_hours(shift_hours) >= s.span_since
WHERE h.hour - to_hours(shift_hours) < s.span_until
GROUP BY ALL;
