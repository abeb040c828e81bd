-- What every question shares: macros for windows, filters and ratios, and two views of traffic.
-- The store runs this file on every open, so that each question also runs as it is in the
-- duckdb shell. All time stamps are UTC without a zone; nothing here reads the clock.

-- [since, until); a border that is not given is open.
CREATE OR REPLACE MACRO in_window(moment, since_border, until_border) AS
    (since_border IS NULL OR moment >= since_border)
    AND (until_border IS NULL OR moment < until_border);

-- A filter that is not given lets everything pass; '' asks for "not given".
CREATE OR REPLACE MACRO matches(actual, wanted) AS (wanted IS NULL OR actual = wanted);

-- The one guarded division: no denominator is "no data", never 0 and never NaN.
CREATE OR REPLACE MACRO ratio(part, whole) AS CASE WHEN whole > 0 THEN part / whole END;

-- A ratio of engine counters. Counters of one family are read at slightly different moments: an
-- excess up to 2 % is capped, a larger one has no meaning and no figure.
CREATE OR REPLACE MACRO counter_ratio(part, whole) AS
    CASE WHEN whole > 0 AND part <= 1.02 * whole THEN least(part / whole, 1.0) END;

-- What prefill did by two counters; unknown stays unknown (greatest alone would make it 0).
CREATE OR REPLACE MACRO computed(prompt_tokens, cached_tokens) AS
    CASE WHEN prompt_tokens - cached_tokens < 0 THEN 0 ELSE prompt_tokens - cached_tokens END;

-- A sum of counts, 0 for no rows.
CREATE OR REPLACE MACRO total(counts) AS coalesce(sum(counts), 0)::BIGINT;

-- A sum of engine counts, possibly shares of an interval; unknown stays unknown.
CREATE OR REPLACE MACRO known_total(counts) AS round(sum(counts))::BIGINT;

-- The shortest round step that needs at most 300 points; weeks start on Monday.
CREATE OR REPLACE MACRO step_for(window_seconds) AS coalesce(
    list_filter(
        [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800],
        lambda step: step * 300 >= window_seconds
    )[1],
    604800 * ceil(window_seconds / (300 * 604800))
)::BIGINT;

-- A row counts as reported when both counts are known and the cache could serve. (Rows of unknown
-- basis keep no cached count.)
CREATE OR REPLACE MACRO is_reported(prompt_tokens, cached_tokens, ineligible_reason) AS
    prompt_tokens IS NOT NULL AND cached_tokens IS NOT NULL AND ineligible_reason IS NULL;

-- Where hot rows begin; before that only roll-ups speak.
CREATE OR REPLACE VIEW hot_from AS
SELECT coalesce(max(hour), TIMESTAMP '-infinity') AS hour FROM hot_since;

-- Additive measures of request rows: exact from hot rows while they exist, from roll-ups beyond.
-- kept_as is 'row', 'hour' or 'minute'. Hours keep route, template and tenant, minutes keep the
-- replica: a question takes rows and one of the two (macro `answers`), never both. A dimension a
-- roll-up does not keep is NULL; one that was not given is ''. Rows of decode replicas are left out.
CREATE OR REPLACE VIEW traffic AS
SELECT
    ts, 'row' AS kept_as, source,
    coalesce(model, '') AS model, coalesce(replica, '') AS replica, coalesce(route, '') AS route,
    coalesce(template, '') AS template, coalesce(template_version, '') AS template_version,
    coalesce(tenant, '') AS tenant,
    1::BIGINT AS requests,
    reported::BIGINT AS reported_requests,
    (ineligible_reason IS NOT NULL)::BIGINT AS ineligible_requests,
    (reported AND cached_tokens > 0)::BIGINT AS reuse_requests,
    prompt_tokens,
    CASE WHEN reported THEN prompt_tokens END AS reported_prompt_tokens,
    CASE WHEN ineligible_reason IS NOT NULL THEN prompt_tokens END AS ineligible_prompt_tokens,
    CASE WHEN reported THEN cached_tokens END AS cached_tokens,
    CASE WHEN reported THEN cached_device END AS cached_device,
    CASE WHEN reported THEN cached_host END AS cached_host,
    CASE WHEN reported THEN cached_disk END AS cached_disk,
    CASE WHEN reported THEN cached_remote END AS cached_remote,
    output_tokens
FROM (
    SELECT
        *,
        is_reported(prompt_tokens, cached_tokens, ineligible_reason) AS reported
    FROM requests
)
WHERE ts >= (SELECT hour FROM hot_from) AND replica_role IS DISTINCT FROM 'decode'
UNION ALL BY NAME
SELECT
    hour AS ts, 'hour' AS kept_as, NULL AS source,
    coalesce(model, '') AS model, NULL AS replica, coalesce(route, '') AS route,
    coalesce(template, '') AS template, NULL AS template_version, coalesce(tenant, '') AS tenant,
    requests, reported_requests, ineligible_requests, reuse_requests,
    prompt_tokens, reported_prompt_tokens, ineligible_prompt_tokens, cached_tokens,
    cached_device, cached_host, cached_disk, cached_remote, output_tokens
FROM hour_rollup WHERE hour < (SELECT hour FROM hot_from)
UNION ALL BY NAME
SELECT
    minute AS ts, 'minute' AS kept_as, NULL AS source,
    coalesce(model, '') AS model, coalesce(replica, '') AS replica, coalesce(route, '') AS route,
    NULL AS template, NULL AS template_version, NULL AS tenant,
    requests, reported_requests, ineligible_requests, reuse_requests,
    prompt_tokens, reported_prompt_tokens, ineligible_prompt_tokens, cached_tokens,
    cached_device, cached_host, cached_disk, cached_remote, output_tokens
FROM minute_rollup WHERE minute < (SELECT hour FROM hot_from);

-- Which kind of row answers: minutes where the replica matters, else hours.
CREATE OR REPLACE MACRO answers(kept_as, dimension, wanted_replica) AS
    kept_as = 'row'
    OR kept_as = CASE
        WHEN dimension = 'replica' OR wanted_replica IS NOT NULL THEN 'minute' ELSE 'hour'
    END;

-- What a row of a log counts to by the dimension asked for, NULL without one. A dimension that
-- nobody knows is an error: all rows would be one group.
CREATE OR REPLACE MACRO log_dimension(dimension, model, replica, route, template, tenant) AS CASE
    WHEN dimension IS NULL THEN NULL
    WHEN dimension = 'model' THEN model
    WHEN dimension = 'replica' THEN replica
    WHEN dimension = 'route' THEN route
    WHEN dimension = 'template' THEN template
    WHEN dimension = 'tenant' THEN tenant
    ELSE error('unknown dimension ' || dimension)
END;

-- The same of traffic, whose hot rows tell more.
CREATE OR REPLACE MACRO traffic_dimension(
    dimension, model, replica, route, template, template_version, tenant, source
) AS CASE
    WHEN dimension = 'template_version' THEN template_version
    WHEN dimension = 'source' THEN source
    ELSE log_dimension(dimension, model, replica, route, template, tenant)
END;

-- The log's traffic that a question is of, `value` being that of the dimension it asks by.
CREATE OR REPLACE MACRO asked_traffic(
    dimension, since_border, until_border, wanted_model, wanted_replica, wanted_route,
    wanted_template, wanted_tenant
) AS TABLE
SELECT
    *,
    traffic_dimension(
        dimension, model, replica, route, template, template_version, tenant, source
    ) AS value
FROM traffic
WHERE
    in_window(ts, since_border, until_border)
    AND answers(kept_as, dimension, wanted_replica)
    AND matches(model, wanted_model)
    AND matches(replica, wanted_replica)
    AND matches(route, wanted_route)
    AND matches(template, wanted_template)
    AND matches(tenant, wanted_tenant);

-- How fine that is kept.
CREATE OR REPLACE MACRO kept_seconds(kept_as) AS
    CASE kept_as WHEN 'hour' THEN 3600 WHEN 'minute' THEN 60 ELSE 1 END;

-- The step of rows from logs: as asked for, else by the length of the window; never finer than kept.
CREATE OR REPLACE MACRO log_step(
    step_seconds, since_border, until_border, moment, moment_seconds
) AS greatest(
    coalesce(
        step_seconds,
        step_for(epoch(
            coalesce(until_border, max(moment)) - coalesce(since_border, min(moment))
        ))
    ),
    max(moment_seconds)
);

-- Sums of two windows side by side, by value of the dimension: the window itself, and the baseline.
-- Without borders the baseline is the window of equal length just before; all time has nothing
-- before it. Values without traffic in either have no row.
CREATE OR REPLACE MACRO compared_windows(
    dimension, baseline_since_border, baseline_until_border, since_border, until_border,
    wanted_model, wanted_replica, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH borders AS (
    SELECT
        coalesce(
            baseline_since_border,
            CASE
                WHEN baseline_until_border IS NOT NULL THEN TIMESTAMP '-infinity'
                ELSE since_border::TIMESTAMP
                    - (coalesce(until_border, max(ts)) - since_border::TIMESTAMP)
            END
        ) AS before_since,
        coalesce(baseline_until_border, since_border) AS before_until
    FROM traffic
    WHERE answers(kept_as, dimension, wanted_replica)
),

selected AS (
    SELECT
        CASE
            WHEN dimension IS NULL THEN error('set the variable by')
            ELSE traffic_dimension(
                dimension, model, replica, route, template, template_version, tenant, source
            )
        END AS value,
        in_window(ts, since_border, until_border) AS is_now,
        coalesce(ts >= before_since AND ts < before_until, false) AS is_before,
        prompt_tokens, ineligible_prompt_tokens, reported_prompt_tokens, cached_tokens
    FROM traffic, borders
    WHERE
        (is_now OR is_before)
        AND answers(kept_as, dimension, wanted_replica)
        AND matches(model, wanted_model)
        AND matches(replica, wanted_replica)
        AND matches(route, wanted_route)
        AND matches(template, wanted_template)
        AND matches(tenant, wanted_tenant)
)

SELECT
    coalesce(value, '') AS value,
    total(CASE WHEN is_now THEN prompt_tokens END) AS prompt_tokens,
    total(CASE WHEN is_now THEN ineligible_prompt_tokens END) AS ineligible_tokens,
    total(CASE WHEN is_now THEN reported_prompt_tokens END) AS reported_tokens,
    total(CASE WHEN is_now THEN cached_tokens END) AS cached_tokens,
    total(CASE WHEN is_before THEN prompt_tokens END) AS prompt_tokens_before,
    total(CASE WHEN is_before THEN ineligible_prompt_tokens END) AS ineligible_tokens_before,
    total(CASE WHEN is_before THEN reported_prompt_tokens END) AS reported_tokens_before,
    total(CASE WHEN is_before THEN cached_tokens END) AS cached_tokens_before
FROM selected
GROUP BY ALL;

-- What an offload map ("load/host" -> amount) holds for one direction, all tiers together.
CREATE OR REPLACE MACRO offloaded(amounts, direction) AS list_sum(list_transform(
    list_filter(map_entries(amounts), lambda e: starts_with(e.key, direction || '/')),
    lambda e: e.value));

-- Samples of engines alone. A KV store, a router or a gateway counts the same prompts once more:
-- what they counted is only in observed_hit_ratio.
CREATE OR REPLACE VIEW engine_own AS
SELECT * FROM engine_samples WHERE observer = 'engine';

-- One row per engine sample with one pair of counts of the same family: cached and prompt tokens,
-- else look-up hits and look-ups where those are the page's headline, else none. Decode replicas are
-- left out: their transfers count as cached. Dimensions that are not known are ''.
CREATE OR REPLACE VIEW engine_traffic AS
SELECT
    * REPLACE (
        coalesce(model, '') AS model,
        coalesce(provenance, '') AS provenance,
        coalesce(cached_tokens, looked_up_cached_tokens) AS cached_tokens
    ),
    CASE
        WHEN prompt_tokens IS NOT NULL AND cached_tokens IS NOT NULL THEN prompt_tokens
        WHEN looked_up_cached_tokens IS NOT NULL THEN lookup_tokens
    END AS reported_prompt_tokens,
    CASE
        WHEN prompt_tokens IS NOT NULL AND cached_tokens IS NOT NULL THEN cached_tokens
        ELSE looked_up_cached_tokens
    END AS reported_cached_tokens,
    cached_tokens IS NULL AND looked_up_cached_tokens IS NOT NULL AS from_lookups,
    coalesce(NOT caching_enabled, false) AS caching_off
FROM (
    SELECT
        *,
        CASE
            -- A page that counts finished prompts may count look-ups under other labels: never both.
            WHEN lookup_tokens IS NOT NULL AND coalesce(provenance, '') NOT LIKE 'finish/%'
                THEN lookup_hit_tokens + coalesce(external_hit_tokens, 0)
        END AS looked_up_cached_tokens
    FROM engine_own
)
WHERE role <> 'decode';

-- Does the interval (since, ts] reach into the window?
CREATE OR REPLACE MACRO reaches_into(since, ts, since_border, until_border) AS
    (since_border IS NULL OR ts >= since_border)
    AND (until_border IS NULL OR coalesce(since, ts) < until_border);

-- How much of the interval (since, ts] lies in the window, 0 to 1. Increases are taken to be even
-- over it, so that a gap is spread and not a spike. An interval without length stands at its end.
CREATE OR REPLACE MACRO overlap_share(since, ts, since_border, until_border) AS
    CASE
        WHEN since IS NULL OR since >= ts THEN in_window(ts, since_border, until_border)::DOUBLE
        ELSE greatest(
            0,
            epoch_us(least(ts, coalesce(until_border, ts)))
            - epoch_us(greatest(since, coalesce(since_border, since)))
        ) / (epoch_us(ts) - epoch_us(since))
    END;

-- The step asked for, else one that suits the engine samples of the window.
CREATE OR REPLACE MACRO engine_step(step_seconds, since_border, until_border) AS coalesce(
    step_seconds,
    (
        SELECT step_for(epoch(
            coalesce(until_border, last_moment) - coalesce(since_border, first_moment)
        ))
        FROM (
            SELECT min(coalesce(since, ts)) AS first_moment, max(ts) AS last_moment
            FROM engine_own
        )
    )
);

-- The starts of the steps that the interval of an engine sample reaches into within the window; one
-- NULL without a step. The first sample of a series has no interval (begun NULL).
CREATE OR REPLACE MACRO steps_of(begun, ended, since_border, until_border, step_seconds) AS CASE
    WHEN step_seconds IS NULL THEN [NULL::TIMESTAMP]
    ELSE generate_series(
        time_bucket(
            to_seconds(step_seconds),
            greatest(coalesce(begun, ended), coalesce(since_border, begun, ended))
        ),
        time_bucket(to_seconds(step_seconds), least(ended, coalesce(until_border, ended))),
        to_seconds(step_seconds)
    )
END;

-- How much of the interval lies in one of these steps and in the window; without a step, in the
-- window alone. (Of borders that are not given `greatest` and `least` take no notice.)
CREATE OR REPLACE MACRO step_share(
    since, ts, since_border, until_border, step_start, step_seconds
) AS overlap_share(
    since, ts,
    greatest(step_start, since_border), least(step_start + to_seconds(step_seconds), until_border)
);

-- Engine samples of the window with the share of each that counts; with a step, once for every
-- step the interval reaches into, else once with step_start NULL.
CREATE OR REPLACE MACRO engine_shares(
    since_border, until_border, step_seconds, wanted_model, wanted_replica
) AS TABLE
WITH stepped AS (
    SELECT
        *,
        unnest(steps_of(since, ts, since_border, until_border, step_seconds)) AS step_start
    FROM engine_traffic
    WHERE
        reaches_into(since, ts, since_border, until_border)
        AND matches(model, wanted_model)
        AND matches(replica, wanted_replica)
),

shares AS (
    SELECT
        *,
        step_share(since, ts, since_border, until_border, step_start, step_seconds) AS share
    FROM stepped
)

SELECT * FROM shares WHERE share > 0;

-- Sums of engine_shares per step and replica. Whole tokens are rounded here, at the finest grain,
-- so that parts add up to the whole. A replica is ineligible where caching is off, or where prompts
-- came and nothing was looked up: the cache was not asked, which is not a miss. That is judged over
-- the whole window, because within a step look-ups and prompts may fall apart.
CREATE OR REPLACE MACRO engine_cells(
    since_border, until_border, step_seconds, wanted_model, wanted_replica
) AS TABLE
WITH cells AS (
    SELECT
        step_start, replica, model, tenant, route, role, engine, provenance, caching_off,
        known_total(prompt_tokens * share) AS prompt_tokens,
        known_total(reported_prompt_tokens * share) AS reported_prompt_tokens,
        known_total(reported_cached_tokens * share) AS reported_cached_tokens,
        known_total(cached_tokens * share) AS cached_tokens,
        known_total(cached_device * share) AS cached_device,
        known_total(cached_host * share) AS cached_host,
        known_total(cached_disk * share) AS cached_disk,
        known_total(cached_remote * share) AS cached_remote,
        known_total(lookup_tokens * share) AS lookup_tokens,
        known_total(lookup_hit_tokens * share) AS lookup_hit_tokens,
        known_total(external_lookup_tokens * share) AS external_lookup_tokens,
        known_total(external_hit_tokens * share) AS external_hit_tokens,
        known_total(preemptions * share) AS preemptions,
        -- A page may tell tenants apart; its time is one all the same.
        sum(epoch(ts - since) * share) FILTER (tenant IS NULL AND route IS NULL)
            AS measured_seconds,
        count(*) FILTER (reset) AS resets,
        count(*) FILTER (gap) AS gaps,
        bool_or(from_lookups) AS from_lookups,
        bool_or(awake = false) AS slept
    FROM engine_shares(
        since_border, until_border, step_seconds, wanted_model, wanted_replica
    )
    GROUP BY ALL
)

SELECT
    * REPLACE (
        -- Old versions count the whole prompt; the connector can only serve what was missed.
        CASE
            WHEN external_lookup_tokens > computed(lookup_tokens, lookup_hit_tokens)
                THEN computed(lookup_tokens, lookup_hit_tokens)
            ELSE external_lookup_tokens
        END AS external_lookup_tokens
    ),
    caching_off
    OR (
        coalesce(sum(lookup_tokens) OVER cache = 0, false)
        AND coalesce(sum(cached_tokens) OVER cache, 0) = 0
    ) AS ineligible,
    -- What prefill did, ineligible prompts included; unknown where the cached count is.
    CASE
        WHEN ineligible THEN prompt_tokens
        ELSE computed(reported_prompt_tokens, reported_cached_tokens)
    END AS prefilled_tokens
FROM cells
WINDOW cache AS (PARTITION BY replica, model);

-- The dimension of a question about engines, as `log_dimension` of one about logs.
CREATE OR REPLACE MACRO engine_dimension(
    dimension, model, replica, role, engine, tenant, route
) AS CASE
    WHEN dimension IS NULL THEN NULL
    WHEN dimension = 'model' THEN model
    WHEN dimension = 'replica' THEN replica
    WHEN dimension = 'role' THEN role
    WHEN dimension = 'engine' THEN engine
    WHEN dimension = 'tenant' THEN coalesce(tenant, '')
    WHEN dimension = 'route' THEN coalesce(route, '')
    ELSE error('unknown dimension ' || dimension)
END;

-- Bounds of a class of similar token counts: half powers of two from 64 on, one class below.
CREATE OR REPLACE MACRO class_from(tokens) AS
    CASE WHEN tokens < 64 THEN 0 ELSE ceil(pow(2, floor(2 * log2(tokens)) / 2)) END::BIGINT;
CREATE OR REPLACE MACRO class_to(tokens) AS
    CASE WHEN tokens < 64 THEN 64 ELSE ceil(pow(2, (floor(2 * log2(tokens)) + 1) / 2)) END::BIGINT;

-- Requests with a measured time to first token. Different points are never mixed.
CREATE OR REPLACE VIEW first_tokens AS
SELECT
    ts, batch, outcome, coalesce(ttft_point, '') AS ttft_point, ttft_seconds,
    prompt_tokens,
    CASE
        WHEN is_reported(prompt_tokens, cached_tokens, ineligible_reason)
            THEN prompt_tokens - cached_tokens
    END AS computed_tokens,
    coalesce(model, '') AS model, coalesce(replica, '') AS replica, coalesce(route, '') AS route,
    coalesce(template, '') AS template, coalesce(tenant, '') AS tenant
FROM requests
WHERE ttft_seconds IS NOT NULL AND replica_role IS DISTINCT FROM 'decode';

-- Those that a question is of.
CREATE OR REPLACE MACRO asked_first_tokens(
    since_border, until_border, wanted_model, wanted_replica, wanted_route, wanted_template,
    wanted_tenant
) AS TABLE
SELECT * FROM first_tokens
WHERE
    in_window(ts, since_border, until_border)
    AND matches(model, wanted_model)
    AND matches(replica, wanted_replica)
    AND matches(route, wanted_route)
    AND matches(template, wanted_template)
    AND matches(tenant, wanted_tenant);

-- Prefill speed per replica and model: slope of prefill time on computed tokens over the hot rows
-- of the window. The engine's own prefill time, else time to first token less queue time, else (no
-- queue time known) time to first token; never two of them in one slope. No figure below 100
-- requests, without spread (standard deviation a tenth of the mean), or with a slope that is not
-- positive.
CREATE OR REPLACE MACRO prefill_speeds(
    since_border, until_border, wanted_model, wanted_replica
) AS TABLE
WITH timed AS (
    SELECT
        coalesce(replica, '') AS replica,
        coalesce(model, '') AS model,
        prompt_tokens - cached_tokens AS computed_tokens,
        coalesce(prefill_seconds, ttft_seconds - coalesce(queue_seconds, 0)) AS seconds,
        CASE
            WHEN prefill_seconds IS NOT NULL THEN '1 prefill_seconds'
            WHEN queue_seconds IS NOT NULL THEN '2 ttft_seconds - queue_seconds'
            ELSE '3 ttft_seconds, queue unknown'
        END AS ranked_basis,
        CASE WHEN prefill_seconds IS NULL THEN coalesce(ttft_point, '') END AS point
    FROM requests
    WHERE
        in_window(ts, since_border, until_border)
        AND replica_role IS DISTINCT FROM 'decode'
        AND is_reported(prompt_tokens, cached_tokens, ineligible_reason)
        AND coalesce(prefill_seconds, ttft_seconds) IS NOT NULL
        -- Their time holds a load as well, which is no prefill.
        AND coalesce(cached_host, 0) + coalesce(cached_disk, 0) + coalesce(cached_remote, 0) = 0
        AND matches(coalesce(model, ''), wanted_model)
        AND matches(coalesce(replica, ''), wanted_replica)
),

slopes AS (
    SELECT
        replica, model, ranked_basis, point,
        count(*) AS requests,
        regr_slope(seconds, computed_tokens) AS seconds_per_token,
        regr_intercept(seconds, computed_tokens) AS intercept_seconds,
        least(regr_r2(seconds, computed_tokens), 1) AS fit,
        min(computed_tokens) AS min_computed_tokens,
        max(computed_tokens) AS max_computed_tokens
    FROM timed
    WHERE seconds >= 0
    GROUP BY ALL
    HAVING
        count(*) >= 100
        AND stddev_pop(computed_tokens) >= 0.1 * avg(computed_tokens)
        AND regr_slope(seconds, computed_tokens) > 0
)

SELECT
    replica, model, requests,
    1 / seconds_per_token AS tokens_per_second,
    -- A queue that is not known, or the way from a gateway or client, would be in it.
    CASE
        WHEN ranked_basis[1] = '1' OR (ranked_basis[1] = '2' AND point LIKE 'engine%')
            THEN greatest(intercept_seconds, 0)
    END AS overhead_seconds,
    fit, min_computed_tokens, max_computed_tokens,
    concat_ws(' at ', ranked_basis[3:], nullif(point, '')) AS basis
FROM slopes
QUALIFY row_number() OVER (
    PARTITION BY replica, model ORDER BY ranked_basis, requests DESC, point
) = 1;

-- What prefill did, what the cache saved, and in what time: by value of the dimension, model and
-- replica. Minutes keep the replica, and with it the speed, as long as template and tenant do not
-- matter. Saved tokens of a replica without a known prefill speed have no time.
CREATE OR REPLACE MACRO prefill_savings(
    dimension, since_border, until_border,
    wanted_model, wanted_replica, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH sums AS (
    SELECT
        log_dimension(dimension, model, replica, route, template, tenant) AS value,
        model, replica,
        total(reported_prompt_tokens) - total(cached_tokens) AS computed_tokens,
        total(cached_tokens) AS saved_tokens
    FROM traffic
    WHERE
        in_window(ts, since_border, until_border)
        AND matches(model, wanted_model)
        AND matches(replica, wanted_replica)
        AND matches(route, wanted_route)
        AND matches(template, wanted_template)
        AND matches(tenant, wanted_tenant)
        AND answers(
            kept_as,
            CASE
                WHEN coalesce(dimension IN ('template', 'tenant'), false)
                    OR wanted_template IS NOT NULL OR wanted_tenant IS NOT NULL
                    THEN 'tenant'
                ELSE 'replica'
            END,
            wanted_replica
        )
    GROUP BY ALL
)

SELECT
    value, model, replica, computed_tokens, saved_tokens,
    saved_tokens / tokens_per_second AS saved_seconds
FROM sums
LEFT JOIN prefill_speeds(NULL, NULL, wanted_model, wanted_replica) USING (replica, model);

-- Tokens in USD by their price per million; none of them need no price.
CREATE OR REPLACE MACRO usd(tokens, price) AS
    CASE WHEN tokens = 0 THEN 0 ELSE tokens * price / 1e6 END;

-- Requests with what they cost. Each prompt token is priced exactly once: read from cache, written
-- to it, or neither. `input_usd` is NULL where there is no price: none is known for the model or
-- for a kind of token the request has, or its cached count is not known. Writes without a lifetime
-- have the price of 5 minutes. Roll-ups do not keep what was written: their tokens have no price
-- (kept_as as in traffic). Rows of decode replicas are left out.
CREATE OR REPLACE VIEW request_costs AS
WITH counted AS (
    SELECT
        ts, provider, model, replica, route, template, tenant, prompt_tokens, output_tokens,
        -- What the cache could not serve was not served by it.
        CASE WHEN ineligible_reason IS NULL THEN cached_tokens ELSE coalesce(cached_tokens, 0) END
            AS read_tokens,
        coalesce(cache_write_1h, 0) AS written_1h,
        coalesce(cache_write_other, 0) AS written_other,
        coalesce(cache_write_5m, 0) + written_1h + written_other AS split_tokens,
        greatest(coalesce(cache_write_tokens, 0), split_tokens) AS written_tokens,
        prompt_tokens - read_tokens - written_tokens AS rest_tokens,
        CASE WHEN rest_tokens >= 0 THEN rest_tokens END AS uncached_tokens,
        cache_write_tokens IS NULL AND split_tokens = 0 AS writes_unknown
    FROM requests
    WHERE ts >= (SELECT hour FROM hot_from) AND replica_role IS DISTINCT FROM 'decode'
),

priced AS (
    SELECT
        counted.*, p.* EXCLUDE (provider, model),
        usd(written_tokens - written_1h - written_other, write_5m)
            + usd(written_1h, write_1h) + usd(written_other, write_other) AS written_usd,
        usd(uncached_tokens, input) + usd(read_tokens, cached_read) + written_usd AS input_usd
    FROM counted
    LEFT JOIN model_prices AS p
        ON p.model = counted.model AND p.provider IS NOT DISTINCT FROM counted.provider
)

SELECT
    ts, 'row' AS kept_as,
    coalesce(provider, '') AS provider,
    coalesce(model, '') AS model, coalesce(replica, '') AS replica, coalesce(route, '') AS route,
    coalesce(template, '') AS template, coalesce(tenant, '') AS tenant,
    1::BIGINT AS requests, prompt_tokens, output_tokens,
    read_tokens, written_tokens, uncached_tokens,
    input_usd,
    usd(prompt_tokens, input) AS input_without_caching_usd,
    written_usd - usd(written_tokens, input) AS write_surcharge_usd,
    usd(output_tokens, output) AS output_usd,
    CASE WHEN write_1h <> write_5m THEN written_tokens - split_tokens ELSE 0 END
        AS assumed_5m_tokens,
    CASE WHEN write_5m > input AND writes_unknown THEN uncached_tokens ELSE 0 END
        AS assumed_unwritten_tokens,
    CASE WHEN prompt_tokens > tier_tokens THEN prompt_tokens ELSE 0 END AS above_tier_tokens,
    source || strftime(as_of, ' (%Y-%m-%d)') AS price_source
FROM priced
UNION ALL BY NAME
SELECT
    ts, kept_as, model, replica, route, template, tenant, requests, prompt_tokens, output_tokens
FROM traffic WHERE kept_as <> 'row';
