-- Times to first token compared between requests that are alike in all but where their KV came
-- from, or in whether transfers ran meanwhile. docs/offload.md has the formulas.

-- The deepest lower tier a request was served from.
CREATE OR REPLACE MACRO deepest_tier(cached_host, cached_disk, cached_remote) AS CASE
    WHEN cached_remote > 0 THEN 'remote' WHEN cached_disk > 0 THEN 'disk'
    WHEN cached_host > 0 THEN 'host' END;

-- Cached tokens that came from lower tiers; NULL where the row does not say.
CREATE OR REPLACE MACRO lower_tokens(
    cached_tokens, cached_device, cached_host, cached_disk, cached_remote
) AS CASE
    WHEN cached_tokens = 0 THEN 0
    WHEN coalesce(cached_host, cached_disk, cached_remote) IS NOT NULL
        THEN coalesce(cached_host, 0) + coalesce(cached_disk, 0) + coalesce(cached_remote, 0)
    WHEN cached_device = cached_tokens THEN 0
END;

-- Reported requests with what a comparison needs. `waited_seconds` is time to first token less
-- queue (a clock that starts at scheduling has no queue in it). `otherwise_tokens` is what prefill
-- would have had to compute without lower tiers. `running_class` is a class of how many requests
-- the replica was serving when this one left the queue, itself included, as far as rows tell.
CREATE OR REPLACE MACRO offload_requests(
    dimension, since_border, until_border, wanted_model, wanted_replica
) AS TABLE
WITH served AS (
    SELECT
        coalesce(model, '') AS model, coalesce(replica, '') AS replica,
        coalesce(ttft_point, '') AS ttft_point,
        CASE
            WHEN dimension IS NULL THEN ''
            WHEN dimension = 'model' THEN coalesce(model, '')
            WHEN dimension = 'replica' THEN coalesce(replica, '')
            ELSE error('unknown dimension ' || dimension)
        END AS value,
        ts, prompt_tokens, ttft_seconds,
        CASE WHEN ttft_point = 'engine_scheduled' THEN ttft_seconds
            ELSE ttft_seconds - queue_seconds END AS waited_seconds,
        deepest_tier(cached_host, cached_disk, cached_remote) AS tier,
        lower_tokens(cached_tokens, cached_device, cached_host, cached_disk, cached_remote)
            AS lower_tokens,
        prompt_tokens - cached_tokens + lower_tokens AS otherwise_tokens,
        -- A mistaken time must not make the arithmetic fail: no request takes more than a day.
        least(greatest(coalesce(queue_seconds, 0), 0), 86400) AS queued,
        least(greatest(coalesce(e2e_seconds, ttft_seconds, 0) - queued, 0), 86400) AS in_service,
        ts + to_microseconds(round(queued * 1e6)::BIGINT) AS started,
        started + to_microseconds(round(in_service * 1e6)::BIGINT) AS ended,
        is_reported(prompt_tokens, cached_tokens, ineligible_reason) AS reported
    FROM requests
    WHERE
        in_window(ts, CAST(since_border AS TIMESTAMP) - INTERVAL 1 HOUR, until_border)
        AND replica_role IS DISTINCT FROM 'decode'
        AND matches(coalesce(replica, ''), wanted_replica)
),

running AS (
    SELECT
        replica, moment,
        sum(sum(step)) OVER (PARTITION BY replica ORDER BY moment) AS requests
    FROM (
        SELECT replica, started AS moment, 1 AS step FROM served
        UNION ALL
        SELECT replica, ended, -1 FROM served
    )
    GROUP BY replica, moment
),

transfers AS (
    SELECT
        replica, since, ts,
        sum(
            coalesce(list_sum(map_values(offload_bytes)), 0)
            + coalesce(list_sum(map_values(offload_tokens)), 0)
            + coalesce(list_sum(map_values(offload_seconds)), 0)
        ) > 0 AS moving
    FROM engine_samples
    WHERE
        coalesce(offload_tokens, offload_bytes, offload_seconds) IS NOT NULL
        AND since < ts AND ts - since <= INTERVAL 2 MINUTE
    GROUP BY ALL
)

SELECT
    s.*,
    floor(2 * log2(greatest(running.requests, 1)))::BIGINT AS running_class,
    CASE WHEN transfers.since < s.started THEN transfers.moving END AS moving
FROM served AS s
JOIN running ON running.replica = s.replica AND running.moment = s.started
ASOF LEFT JOIN transfers ON transfers.replica = s.replica AND transfers.ts >= s.started
WHERE
    in_window(s.ts, since_border, until_border)
    AND matches(s.model, wanted_model)
    AND s.reported;

-- Half of a difference of order statistics that covers a median with 95 % or more, over 1.96: its
-- standard error without any assumption on the shape (McKean and Schrader 1984). `ordered` is
-- sorted; fewer than 6 values have none.
CREATE OR REPLACE MACRO median_error(ordered) AS CASE
    WHEN len(ordered) >= 6 THEN (
        ordered[len(ordered) + 1 - median_rank(len(ordered))] - ordered[median_rank(len(ordered))]
    ) / (2 * 1.96) END;
CREATE OR REPLACE MACRO median_rank(count) AS
    greatest(1, floor((count + 1) / 2.0 - 0.98 * sqrt(count)))::BIGINT;
CREATE OR REPLACE MACRO middle(ordered) AS (
    ordered[(len(ordered) + 1) // 2] + ordered[len(ordered) // 2 + 1]
) / 2;

-- Requests set beside each other within strata: same model, replica and ttft_point, same class of
-- prompt tokens, of tokens to compute without lower tiers, and of running requests. `comparison` is
-- a tier (arm 1 = served by it, arm 0 = computed) or 'transfers' (both computed; arm 1 = while
-- transfers ran). What differs within a class is taken off by the slope of the arm-0 requests of
-- all strata on the tokens to compute. Only strata with 10 of each arm.
CREATE OR REPLACE MACRO offload_compared(
    dimension, since_border, until_border, wanted_model, wanted_replica
) AS TABLE
WITH labelled AS (
    SELECT
        *,
        class_from(prompt_tokens) AS prompt_class,
        class_from(otherwise_tokens) AS otherwise_class,
        unnest(CASE
            WHEN lower_tokens > 0 THEN [{'comparison': tier, 'arm': 1}]
            ELSE [
                {'comparison': 'host', 'arm': 0}, {'comparison': 'disk', 'arm': 0},
                {'comparison': 'remote', 'arm': 0}, {'comparison': 'transfers', 'arm': moving::INT}
            ]
        END, recursive := true)
    FROM offload_requests(dimension, since_border, until_border, wanted_model, wanted_replica)
    WHERE waited_seconds >= 0 AND lower_tokens IS NOT NULL
),

strata AS (
    SELECT
        comparison, value, model, replica, ttft_point,
        prompt_class, otherwise_class, running_class,
        count(*) FILTER (arm = 1) AS served,
        count(*) FILTER (arm = 0) AS computed,
        regr_sxy(waited_seconds, otherwise_tokens) FILTER (arm = 0) AS sxy,
        regr_sxx(waited_seconds, otherwise_tokens) FILTER (arm = 0) AS sxx
    FROM labelled
    WHERE arm IS NOT NULL
    GROUP BY ALL
),

slopes AS (
    SELECT
        comparison, value, model, replica, ttft_point,
        greatest(coalesce(ratio(sum(sxy), sum(sxx)), 0), 0) AS slope
    FROM strata
    GROUP BY ALL
)

SELECT
    comparison, value, model, replica, ttft_point, prompt_class, otherwise_class, running_class,
    arm, lower_tokens, waited_seconds, slope,
    waited_seconds - slope * otherwise_tokens AS level_seconds
FROM labelled
JOIN strata USING (
    comparison, value, model, replica, ttft_point, prompt_class, otherwise_class, running_class
)
JOIN slopes USING (comparison, value, model, replica, ttft_point)
WHERE served >= 10 AND computed >= 10;

-- The difference of the two arms (arm 1 less arm 0; negative = sooner), with its standard error:
-- differences of medians in each stratum, weighted by its requests of arm 1. With `within` one row
-- per class of tokens to compute, else one. Of several ttft_points the one with most requests.
CREATE OR REPLACE MACRO offload_differences(
    dimension, within, since_border, until_border, wanted_model, wanted_replica
) AS TABLE
WITH compared AS (
    SELECT
        *,
        CASE
            WHEN within IS NULL THEN NULL
            WHEN within = 'computed' THEN otherwise_class
            ELSE error('unknown within ' || within)
        END AS within_from
    FROM offload_compared(dimension, since_border, until_border, wanted_model, wanted_replica)
),

arms AS (
    SELECT
        * EXCLUDE (lower_tokens, waited_seconds, level_seconds),
        count(*) AS requests,
        list_sort(list(level_seconds)) AS ordered,
        avg(level_seconds) AS mean_level,
        median(waited_seconds) AS median_seconds
    FROM compared
    GROUP BY ALL
),

pairs AS (
    SELECT
        served.*,
        computed.requests AS computed_requests,
        computed.median_seconds AS computed_seconds,
        middle(computed.ordered) AS computed_level,
        middle(served.ordered) - computed_level AS difference,
        served.mean_level - computed.mean_level AS mean_difference,
        pow(median_error(served.ordered), 2) + pow(median_error(computed.ordered), 2) AS variance
    FROM arms AS served
    JOIN arms AS computed USING (
        comparison, value, model, replica, ttft_point, prompt_class, otherwise_class, running_class
    )
    WHERE served.arm = 1 AND computed.arm = 0
),

chosen AS (
    SELECT comparison, value, arg_max(ttft_point, (requests, ttft_point)) AS ttft_point
    FROM (
        SELECT comparison, value, ttft_point, sum(requests) AS requests
        FROM pairs GROUP BY comparison, value, ttft_point
    )
    GROUP BY comparison, value
),

-- What a load costs beyond its tokens: the rest of each served request over the median of those
-- that computed, as a line on the tokens loaded. No line below 50 requests, without spread, or
-- with a slope within two standard errors of 0.
lines AS (
    SELECT
        c.comparison, c.value, c.within_from, c.ttft_point,
        regr_intercept(level_seconds - computed_level, lower_tokens) AS fixed_seconds,
        regr_slope(level_seconds - computed_level, lower_tokens) AS net_seconds_per_token,
        max(lower_tokens) AS longest_tokens
    FROM compared AS c
    JOIN pairs USING (
        comparison, value, model, replica, ttft_point, prompt_class, otherwise_class, running_class
    )
    WHERE c.arm = 1
    GROUP BY ALL
    HAVING
        count(*) >= 50
        AND stddev_pop(lower_tokens) >= 0.1 * avg(lower_tokens)
        AND regr_r2(level_seconds - computed_level, lower_tokens) * (count(*) - 2)
            >= 4 * (1 - regr_r2(level_seconds - computed_level, lower_tokens))
),

differences AS (
    SELECT
        comparison, value, within_from, ttft_point,
        sum(requests)::BIGINT AS served_requests,
        sum(computed_requests)::BIGINT AS computed_requests,
        sum(requests * median_seconds) / sum(requests) AS served_seconds,
        sum(requests * computed_seconds) / sum(requests) AS computed_seconds,
        sum(requests * difference) / sum(requests) AS difference_seconds,
        sqrt(sum(pow(requests, 2) * variance)) / sum(requests) AS error_seconds,
        sum(requests * mean_difference) / sum(requests) AS mean_difference_seconds,
        sum(requests * slope) / sum(requests) AS prefill_seconds_per_token
    FROM pairs
    JOIN chosen USING (comparison, value, ttft_point)
    GROUP BY ALL
)

SELECT
    differences.*,
    difference_seconds - 1.96 * error_seconds AS low_seconds,
    difference_seconds + 1.96 * error_seconds AS high_seconds,
    fixed_seconds,
    net_seconds_per_token + prefill_seconds_per_token AS load_seconds_per_token,
    -- A line says nothing beyond the longest load it was drawn through.
    CASE
        WHEN net_seconds_per_token < 0
            AND -fixed_seconds / net_seconds_per_token <= longest_tokens
            THEN greatest(-fixed_seconds / net_seconds_per_token, 0)
    END AS break_even_tokens
FROM differences
LEFT JOIN lines
    ON lines.comparison = differences.comparison AND lines.value = differences.value
    AND lines.ttft_point = differences.ttft_point
    AND lines.within_from IS NOT DISTINCT FROM differences.within_from;
