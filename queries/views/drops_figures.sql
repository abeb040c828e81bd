-- The figures by which windows are judged: of the window itself, of the same hours of the weeks
-- before (usual_…), and of earlier hours of like load. One row per window, basis, model and value;
-- `place` counts windows backwards.
CREATE OR REPLACE MACRO drop_figures(
    dimension, since_border, until_border, window_seconds, zone, least_tokens,
    wanted_model, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH requests_seen AS MATERIALIZED (
    FROM drop_requests(
        dimension, since_border, until_border, window_seconds, zone,
        wanted_model, wanted_route, wanted_template, wanted_tenant
    )
),

windows AS MATERIALIZED (
    FROM drop_windows(since_border, until_border, window_seconds, zone)
),

pages AS MATERIALIZED (
    FROM drop_pages(since_border, until_border, window_seconds, zone, wanted_model)
),

-- Times of different points of measurement are not compared: one a model.
ttft_points AS (
    SELECT model, mode(ttft_point ORDER BY ttft_point) AS ttft_point
    FROM requests_seen
    WHERE ttft_seconds IS NOT NULL
    GROUP BY model
),

-- By the log: one row per window, week, model and value.
log_facts AS MATERIALIZED (
    SELECT
        place, week, model, value,
        total(eligible_tokens) AS eligible_tokens,
        total(reported_tokens) AS reported_tokens,
        total(cached_tokens) AS cached_tokens,
        count(reported_tokens) AS reported_requests,
        quantile_cont(ttft_seconds, 0.9)
            FILTER (requests_seen.ttft_point = ttft_points.ttft_point) AS ttft_seconds,
        ratio(count(*) FILTER (moved), count(*) FILTER (moved IS NOT NULL)) AS moved_ratio,
        ratio(count(DISTINCT scope), count(DISTINCT session)) AS scopes_per_session,
        -- First turns miss what later ones hit.
        ratio(
            total(CASE WHEN turn = 1 THEN reported_tokens END),
            total(CASE WHEN turn IS NOT NULL THEN reported_tokens END)
        ) AS first_turns_ratio,
        ratio(
            total(CASE WHEN turn = 1 THEN cached_tokens END),
            total(CASE WHEN turn = 1 THEN reported_tokens END)
        ) AS first_hit_ratio,
        ratio(
            total(CASE WHEN turn > 1 THEN cached_tokens END),
            total(CASE WHEN turn > 1 THEN reported_tokens END)
        ) AS later_hit_ratio,
        mode(model_fingerprint ORDER BY model_fingerprint) AS fingerprint
    FROM requests_seen
    LEFT JOIN ttft_points USING (model)
    GROUP BY ALL
),

-- Where the log reports on a model, its counters are left out: never a blend.
logged AS (
    SELECT place, model
    FROM log_facts
    GROUP BY ALL
    HAVING bool_or(week = 0) AND sum(reported_tokens) > 0
),

replica_facts AS MATERIALIZED (
    FROM drop_replicas(
        dimension, since_border, until_border, window_seconds, zone, wanted_model
    )
    ANTI JOIN logged USING (place, model)
    WHERE
        value IS NOT NULL
        AND coalesce(wanted_route, wanted_template, wanted_tenant) IS NULL
),

-- By engine counters: the same, and what only they tell.
engine_facts AS (
    SELECT
        place, week, model, value,
        total(CASE WHEN NOT unasked THEN eligible_tokens END) AS eligible_tokens,
        total(reported_tokens) AS reported_tokens,
        total(cached_tokens) AS cached_tokens,
        round(sum(requests))::BIGINT AS reported_requests,
        total(CASE WHEN unasked THEN prompt_tokens END) AS unasked_tokens,
        ratio(unasked_tokens, sum(prompt_tokens)) AS unasked_ratio,
        ratio(sum(reported_tokens), sum(requests)) AS tokens_per_request,
        sum(read_seconds) / window_seconds AS replicas,
        ratio(max(reported_tokens), sum(reported_tokens)) AS busiest_share_ratio,
        ratio(sum(usage_sum), sum(usage_samples)) AS usage_ratio,
        avg(capacity_tokens) AS capacity_tokens,
        total(resets) AS resets,
        count(*) AS known_replicas,
        mode(version ORDER BY version) AS fingerprint
    FROM replica_facts
    LEFT JOIN pages USING (place, week, model, replica)
    GROUP BY ALL
),

facts AS MATERIALIZED (
    SELECT
        *,
        ratio(cached_tokens, reported_tokens) AS hit_ratio,
        ratio(reported_tokens, eligible_tokens) AS coverage_ratio
    FROM (
        SELECT 'log' AS basis, *
        FROM log_facts
        ANTI JOIN replica_facts USING (place, model)
        LEFT JOIN (
            SELECT
                place, week, model, ratio(sum(usage_sum), sum(usage_samples)) AS usage_ratio,
                total(resets) AS resets, count(*) AS known_replicas
            FROM pages
            GROUP BY ALL
        ) USING (place, week, model)
        UNION ALL BY NAME
        SELECT 'engine' AS basis, * FROM engine_facts
    )
    LEFT JOIN drop_first_tokens(since_border, until_border, window_seconds, zone, wanted_model)
        USING (place, week, model)
),

-- What is usual: the weeks with enough traffic.
usual AS (
    SELECT
        basis, place, model, value,
        count(*) AS history_weeks,
        median(hit_ratio) AS hit_ratio,
        avg(reported_tokens) AS reported_tokens,
        median(coverage_ratio) AS coverage_ratio,
        median(ttft_seconds) AS ttft_seconds,
        median(engine_ttft_seconds) AS engine_ttft_seconds,
        median(usage_ratio) AS usage_ratio,
        coalesce(median(moved_ratio), 0) AS moved_ratio,
        coalesce(median(scopes_per_session), 0) AS scopes_per_session,
        median(first_turns_ratio) AS first_turns_ratio,
        median(later_hit_ratio) - median(first_hit_ratio) AS turns_apart_ratio,
        coalesce(median(resets), 0) AS resets,
        coalesce(median(unasked_ratio), 0) AS unasked_ratio,
        median(tokens_per_request) AS tokens_per_request,
        median(replicas) AS replicas,
        median(busiest_share_ratio) AS busiest_share_ratio,
        median(capacity_tokens) AS capacity_tokens,
        list(DISTINCT fingerprint) FILTER (fingerprint IS NOT NULL) AS fingerprints
    FROM facts
    WHERE week > 0 AND reported_tokens >= least_tokens
    GROUP BY ALL
),

-- Parts (templates, by engine counters replicas): how much of the drop is each one's own, and how
-- much the mix.
part_facts AS (
    SELECT
        'log' AS basis, place, week, model, value, template AS part,
        total(reported_tokens) AS reported_tokens,
        ratio(total(cached_tokens), total(reported_tokens)) AS hit_ratio,
        count(reported_tokens) AS reported_requests,
        mode(template_version ORDER BY template_version) AS version
    FROM requests_seen
    GROUP BY ALL
    UNION ALL BY NAME
    SELECT
        'engine' AS basis, place, week, model, value, replica AS part, reported_tokens,
        ratio(cached_tokens, reported_tokens) AS hit_ratio, requests AS reported_requests
    FROM replica_facts
),

part_usual AS (
    SELECT
        basis, place, model, value, part,
        median(part_facts.hit_ratio) AS hit_ratio,
        sum(part_facts.reported_tokens) / max(history_weeks) AS reported_tokens,
        list(DISTINCT version) FILTER (version IS NOT NULL) AS versions
    FROM part_facts
    JOIN usual USING (basis, place, model, value)
    WHERE week > 0
    GROUP BY ALL
),

parts AS (
    SELECT
        basis, place, model, value, part, version, now.reported_tokens,
        -- Tokens lost by its own ratio, and by its share of the traffic. One that appeared is all mix.
        CASE
            WHEN before.hit_ratio IS NULL THEN 0
            ELSE (before.hit_ratio - now.hit_ratio) * now.reported_tokens
        END AS own_tokens,
        CASE
            WHEN before.hit_ratio IS NULL
                THEN (usual.hit_ratio - now.hit_ratio) * now.reported_tokens
            ELSE (usual.hit_ratio - before.hit_ratio) * (
                now.reported_tokens
                - before.reported_tokens / usual.reported_tokens * facts.reported_tokens
            )
        END AS mix_tokens,
        -- Of a handful of requests nothing can be said.
        CASE WHEN now.reported_requests >= 15 THEN ratio(now.hit_ratio, before.hit_ratio) END
            AS kept_ratio,
        -- A version is new where there were others before: not where none was logged.
        coalesce(len(before.versions) > 0 AND NOT list_contains(before.versions, version), false)
            AS is_new_version
    FROM part_facts AS now
    JOIN facts USING (basis, place, week, model, value)
    JOIN usual USING (basis, place, model, value)
    LEFT JOIN part_usual AS before USING (basis, place, model, value, part)
    WHERE week = 0 AND now.reported_tokens > 0
),

contributors AS (
    SELECT
        basis, place, model, value,
        sum(greatest(own_tokens, 0)) AS all_own_tokens,
        sum(mix_tokens) AS mix_tokens,
        max(own_tokens) AS own_tokens,
        arg_max(part, (own_tokens, part)) AS part,
        arg_max(version, (own_tokens, part)) AS version,
        arg_max(is_new_version, (own_tokens, part)) AS is_new_version,
        arg_max(kept_ratio, (own_tokens, part)) AS kept_ratio,
        max(own_tokens) / arg_max(reported_tokens, (own_tokens, part)) AS part_drop_ratio,
        -- All others together; NULL where there is no other.
        ratio(
            sum(own_tokens) - max(own_tokens),
            sum(reported_tokens) - arg_max(reported_tokens, (own_tokens, part))
        ) AS others_drop_ratio
    FROM parts
    GROUP BY ALL
),

-- Four weeks of hours, and another one before them for what changes from week to week by chance.
hours_seen AS MATERIALIZED (
    SELECT 'log' AS basis, *
    FROM drop_logged_hours(
        dimension,
        (SELECT min(begins) - INTERVAL 36 DAY FROM windows WHERE week = 0),
        (SELECT max(ends) FROM windows),
        wanted_model, wanted_route, wanted_template, wanted_tenant
    )
    WHERE model IN (SELECT model FROM log_facts)
    UNION ALL BY NAME
    SELECT 'engine' AS basis, *
    FROM drop_engine_hours(
        dimension,
        (SELECT min(begins) - INTERVAL 36 DAY FROM windows WHERE week = 0),
        (SELECT max(ends) FROM windows),
        wanted_model
    )
    WHERE model IN (SELECT model FROM replica_facts)
),

-- `stray` is against the same hour a week before, where there is none against that of the day before.
hours AS MATERIALIZED (
    SELECT
        h.basis, h.hour, h.model, h.value, h.reported_tokens, h.usage_ratio,
        ratio(h.cached_tokens, h.reported_tokens) AS hit_ratio,
        h.reported_tokens - h.cached_tokens AS computed_tokens,
        coalesce(
            drop_stray(h.cached_tokens, h.reported_tokens, w.cached_tokens, w.reported_tokens),
            drop_stray(h.cached_tokens, h.reported_tokens, d.cached_tokens, d.reported_tokens)
        ) AS stray
    FROM hours_seen AS h
    LEFT JOIN hours_seen AS w
        ON w.hour = h.hour - INTERVAL 7 DAY
        AND w.basis = h.basis AND w.model = h.model AND w.value = h.value
    LEFT JOIN hours_seen AS d
        ON d.hour = h.hour - INTERVAL 1 DAY
        AND d.basis = h.basis AND d.model = h.model AND d.value = h.value
    WHERE h.reported_tokens >= least_tokens
),

-- Earlier hours beside each window: those of like load, and all. Hours of the last day may be those
-- of a fault that lasts: they tell what is usual only where there are no others.
beside AS (
    SELECT
        facts.place, hours.*,
        hours.hour < begins - INTERVAL 1 DAY AS before_today,
        coalesce(abs(hours.usage_ratio - facts.usage_ratio) <= 0.05, true)
        AND hours.reported_tokens * window_seconds / 3600
            BETWEEN facts.reported_tokens / 1.4 AND facts.reported_tokens * 1.4 AS alike
    FROM facts
    JOIN windows USING (place, week)
    JOIN hours ON hours.basis = facts.basis
        AND hours.model = facts.model AND hours.value = facts.value
        AND hours.hour >= begins - INTERVAL 28 DAY AND hours.hour < begins - INTERVAL 59 MINUTE
    WHERE week = 0
),

counted AS (
    SELECT
        *,
        count(*) FILTER (alike AND before_today) OVER (PARTITION BY basis, place, model, value) >= 12
            AS enough_before_today
    FROM beside
),

history AS (
    SELECT
        basis, place, model, value,
        count(*) FILTER (alike) AS hours_alike,
        median(hit_ratio) FILTER (alike AND (before_today OR NOT enough_before_today)) AS alike_ratio,
        -- Of the last day only what lies above its middle: faults lie below.
        CASE
            WHEN bool_or(enough_before_today) THEN (
                quantile_cont(hit_ratio, 0.84) FILTER (alike AND before_today)
                - quantile_cont(hit_ratio, 0.16) FILTER (alike AND before_today)
            ) / 2
            ELSE quantile_cont(hit_ratio, 0.84) FILTER (alike) - median(hit_ratio) FILTER (alike)
        END AS alike_spread_ratio,
        least(regr_slope(hit_ratio, usage_ratio), 0) AS slope,
        median(stray) AS stray,
        max(computed_tokens) AS most_computed_tokens
    FROM counted
    GROUP BY ALL
),

compared AS (
    SELECT
        facts.*, windows.begins, windows.is_asked,
        usual.hit_ratio AS usual_ratio,
        coalesce(usual.history_weeks, 0) AS history_weeks,
        usual.reported_tokens AS usual_reported_tokens,
        usual.ttft_seconds AS usual_ttft_seconds,
        usual.engine_ttft_seconds AS usual_engine_ttft_seconds,
        usual.coverage_ratio AS usual_coverage_ratio,
        usual.moved_ratio AS usual_moved_ratio,
        usual.scopes_per_session AS usual_scopes,
        usual.first_turns_ratio AS usual_first_turns_ratio,
        -- What more first turns, hitting as usual, take from the ratio.
        (facts.first_turns_ratio - usual.first_turns_ratio) * turns_apart_ratio
            AS turns_part_ratio,
        usual.usage_ratio AS usual_usage_ratio,
        usual.resets AS usual_resets,
        usual.unasked_ratio AS usual_unasked_ratio,
        usual.tokens_per_request AS usual_tokens_per_request,
        usual.replicas AS usual_replicas,
        usual.busiest_share_ratio AS usual_busiest_share_ratio,
        usual.capacity_tokens AS usual_capacity_tokens,
        coalesce(
            len(usual.fingerprints) > 0 AND NOT list_contains(usual.fingerprints, fingerprint), false
        ) AS is_new_model,
        -- Whether the last scrapes, where they are those of this window, all worked.
        coalesce(answering.until_moment <= ends + INTERVAL 10 MINUTE AND all_up, false)
            AS targets_answer,
        contributors.* EXCLUDE (basis, place, model, value),
        coalesce(hours_alike, 0) >= 12 AS load_is_known,
        usual.hit_ratio + slope * (facts.usage_ratio - usual.usage_ratio) AS by_slope_ratio,
        CASE
            WHEN load_is_known THEN alike_ratio
            -- A straight line leads below nothing.
            WHEN by_slope_ratio IS NOT NULL THEN greatest(by_slope_ratio, 0)
        END AS at_load_ratio,
        -- 2.198 x the median of a squared normal deviate is its variance.
        sqrt(2.198 * stray * (
            ratio(1, facts.reported_tokens)
            + coalesce(1 / (usual.history_weeks * usual.reported_tokens), 0)
        )) AS chance_ratio,
        -- A load never seen may do more than its slope says.
        CASE
            WHEN load_is_known THEN greatest(alike_spread_ratio, chance_ratio)
            ELSE 2 * chance_ratio
        END AS noise_ratio,
        most_computed_tokens * window_seconds / 3600 AS most_computed_tokens
    FROM facts
    JOIN windows USING (place, week)
    LEFT JOIN usual USING (basis, place, model, value)
    LEFT JOIN contributors USING (basis, place, model, value)
    LEFT JOIN history USING (basis, place, model, value)
    CROSS JOIN (
        SELECT max(last_attempt) AS until_moment, bool_and(coalesce(up, false)) AS all_up FROM targets
    ) AS answering
    WHERE week = 0
)

FROM compared;
