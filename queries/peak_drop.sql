/*
name: peak_drop
question: Did the hit ratio drop beyond what its hours and its load explain, and by what cause?
grain: one row per window, model (and value of `by`); the last window first
params:
  by: {type: VARCHAR, default: null, one_of: [model, route, template, tenant, replica], meaning: "One row more per value; one per model if not set. Replicas are told apart by engine counters alone."}
  since: {type: TIMESTAMP, default: null, meaning: "Judge every window from here on; the last one only if not set."}
  until: {type: TIMESTAMP, default: null, meaning: "End of the last window, exclusive; after the newest request if not set, or page of an engine where none is logged."}
  window_seconds: {type: BIGINT, default: 3600, meaning: "Length of a window."}
  zone: {type: VARCHAR, default: UTC, meaning: "Time zone whose hours of the week are compared, like Europe/Berlin."}
  min_tokens: {type: BIGINT, default: 20000, meaning: "Windows and weeks with fewer reported prompt tokens are not judged."}
  min_requests: {type: BIGINT, default: 30, meaning: "Windows with fewer reported requests are not judged."}
  model: {type: VARCHAR, default: null, meaning: "Only this model; '' is \"not given\"."}
  route: {type: VARCHAR, default: null, meaning: "Only this route."}
  template: {type: VARCHAR, default: null, meaning: "Only this template."}
  tenant: {type: VARCHAR, default: null, meaning: "Only this tenant."}
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "Start of the window."}
  model: {type: VARCHAR, unit: name, meaning: "The model, '' if not given."}
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given or without by."}
  basis: {type: VARCHAR, unit: name, meaning: "log: from request rows; engine: from engine counters, of models no log reports on and of replicas. Never both in one row."}
  reported_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens with a known cached count, in the log or by the counters."}
  token_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "Cached / reported prompt tokens in the window."}
  coverage_ratio: {type: DOUBLE, unit: ratio, meaning: "Reported / eligible prompt tokens."}
  expected_ratio: {type: DOUBLE, unit: ratio, meaning: "Median of the same local hours of the last four weeks, or what is usual at this load where that is lower; only the latter without a week of history."}
  expected_low_ratio: {type: DOUBLE, unit: ratio, meaning: "expected_ratio less three times what ratios of so much traffic stray by chance."}
  expected_high_ratio: {type: DOUBLE, unit: ratio, meaning: "expected_ratio plus the same."}
  history_weeks: {type: BIGINT, unit: count, meaning: "Of the last four weeks, those with enough traffic in these hours."}
  method: {type: VARCHAR, unit: name, meaning: "same hours, equal pressure (no week of history yet), or none (nothing to compare with)."}
  pressure_ratio: {type: DOUBLE, unit: ratio, meaning: "Mean KV usage of the model's replicas (or of the one) in the window."}
  usual_pressure_ratio: {type: DOUBLE, unit: ratio, meaning: "Median of the same in the weeks before."}
  load_part_ratio: {type: DOUBLE, unit: ratio, meaning: "What load explains: usual ratio of these hours less the ratio at this load (median of earlier hours of like KV usage and traffic, else by their slope), at least 0."}
  drop_ratio: {type: DOUBLE, unit: ratio, meaning: "expected_ratio - token_hit_ratio: what hours and load do not explain. Negative = above."}
  is_drop: {type: BOOLEAN, unit: flag, meaning: "Beyond chance: 5 points and 3.5 deviations; 6 and 2.5 where another mix explains most; 3 and 1 where a cause is in evidence (4 and 2 for memory pressure); a fall of 10 points under a load that was never seen, with far more KV in use than usual; or telemetry failed or caching was switched off for a fifth of the tokens. NULL where nothing can be judged."}
  class: {type: VARCHAR, unit: name, meaning: "Kind of the drop; 'memory pressure as expected' where load explains it and it is none."}
  evidence: {type: VARCHAR, unit: text, meaning: "The figures behind the class."}
  contributor: {type: VARCHAR, unit: name, meaning: "Template (and version), by engine counters replica, that lost most by a lower ratio of its own."}
  contributor_share_ratio: {type: DOUBLE, unit: ratio, meaning: "Its loss / losses of all by lower ratios of their own."}
  hurts: {type: BOOLEAN, unit: flag, meaning: "TTFT p90 (of the log, else of the engines' histograms of the model) a quarter above its usual one in these hours, or computed tokens within a tenth of the highest hour in four weeks. NULL without either."}
  severity: {type: VARCHAR, unit: name, meaning: "page: a drop of known history that hurts; without a cause only from 15 points and 5 deviations on, of another mix only on top of the usual traffic, of memory pressure only at loads seen before, of telemetry never. ticket: any other drop."}
*/
WITH requests_seen AS MATERIALIZED (
    FROM drop_requests(
        getvariable('by'), getvariable('since'), getvariable('until'),
        coalesce(getvariable('window_seconds'), 3600), coalesce(getvariable('zone'), 'UTC'),
        getvariable('model'), getvariable('route'), getvariable('template'), getvariable('tenant')
    )
),

windows AS MATERIALIZED (
    FROM drop_windows(
        getvariable('since'), getvariable('until'),
        coalesce(getvariable('window_seconds'), 3600), coalesce(getvariable('zone'), 'UTC')
    )
),

pages AS MATERIALIZED (
    FROM drop_pages(
        getvariable('since'), getvariable('until'),
        coalesce(getvariable('window_seconds'), 3600), coalesce(getvariable('zone'), 'UTC'), getvariable('model')
    )
),

-- Times of different points of measurement are not compared: one a model.
ttft_points AS (
    SELECT model, mode(ttft_point) AS ttft_point
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
        mode(model_fingerprint) AS fingerprint
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
        getvariable('by'), getvariable('since'), getvariable('until'),
        coalesce(getvariable('window_seconds'), 3600), coalesce(getvariable('zone'), 'UTC'), getvariable('model')
    )
    ANTI JOIN logged USING (place, model)
    WHERE
        value IS NOT NULL
        AND coalesce(getvariable('route'), getvariable('template'), getvariable('tenant')) IS NULL
),

-- By engine counters: the same, and what only they tell.
engine_facts AS (
    SELECT
        place, week, model, value,
        total(CASE WHEN NOT unasked THEN prompt_tokens END) AS eligible_tokens,
        total(reported_tokens) AS reported_tokens,
        total(cached_tokens) AS cached_tokens,
        round(sum(requests))::BIGINT AS reported_requests,
        total(CASE WHEN unasked THEN prompt_tokens END) AS unasked_tokens,
        ratio(unasked_tokens, sum(prompt_tokens)) AS unasked_ratio,
        ratio(sum(reported_tokens), sum(requests)) AS tokens_per_request,
        sum(read_seconds) / coalesce(getvariable('window_seconds'), 3600) AS replicas,
        ratio(max(reported_tokens), sum(reported_tokens)) AS busiest_share_ratio,
        ratio(sum(usage_sum), sum(usage_samples)) AS usage_ratio,
        avg(capacity_tokens) AS capacity_tokens,
        total(resets) AS resets,
        mode(version) AS fingerprint
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
                total(resets) AS resets
            FROM pages
            GROUP BY ALL
        ) USING (place, week, model)
        UNION ALL BY NAME
        SELECT 'engine' AS basis, * FROM engine_facts
    )
    LEFT JOIN drop_first_tokens(
        getvariable('since'), getvariable('until'),
        coalesce(getvariable('window_seconds'), 3600), coalesce(getvariable('zone'), 'UTC'), getvariable('model')
    ) USING (place, week, model)
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
        coalesce(median(resets), 0) AS resets,
        coalesce(median(unasked_ratio), 0) AS unasked_ratio,
        median(tokens_per_request) AS tokens_per_request,
        median(replicas) AS replicas,
        median(busiest_share_ratio) AS busiest_share_ratio,
        median(capacity_tokens) AS capacity_tokens,
        list(DISTINCT fingerprint) FILTER (fingerprint IS NOT NULL) AS fingerprints
    FROM facts
    WHERE week > 0 AND reported_tokens >= coalesce(getvariable('min_tokens'), 20000)
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
        mode(template_version) AS version
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
        arg_max(part, own_tokens) AS part,
        arg_max(version, own_tokens) AS version,
        arg_max(is_new_version, own_tokens) AS is_new_version,
        arg_max(kept_ratio, own_tokens) AS kept_ratio,
        max(own_tokens) / arg_max(reported_tokens, own_tokens) AS part_drop_ratio,
        -- All others together; NULL where there is no other.
        ratio(
            sum(own_tokens) - max(own_tokens),
            sum(reported_tokens) - arg_max(reported_tokens, own_tokens)
        ) AS others_drop_ratio
    FROM parts
    GROUP BY ALL
),

-- Four weeks of hours, and another one before them for what changes from week to week by chance.
hours_seen AS MATERIALIZED (
    SELECT 'log' AS basis, *
    FROM drop_logged_hours(
        getvariable('by'),
        (SELECT min(begins) - INTERVAL 36 DAY FROM windows WHERE week = 0),
        (SELECT max(ends) FROM windows),
        getvariable('model'), getvariable('route'), getvariable('template'), getvariable('tenant')
    )
    WHERE model IN (SELECT model FROM log_facts)
    UNION ALL BY NAME
    SELECT 'engine' AS basis, *
    FROM drop_engine_hours(
        getvariable('by'),
        (SELECT min(begins) - INTERVAL 36 DAY FROM windows WHERE week = 0),
        (SELECT max(ends) FROM windows),
        getvariable('model')
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
    WHERE h.reported_tokens >= coalesce(getvariable('min_tokens'), 20000)
),

-- Earlier hours beside each window: those of like load, and all.
beside AS (
    SELECT
        facts.place, hours.*,
        coalesce(abs(hours.usage_ratio - facts.usage_ratio) <= 0.05, true)
        AND hours.reported_tokens * coalesce(getvariable('window_seconds'), 3600) / 3600
            BETWEEN facts.reported_tokens / 1.4 AND facts.reported_tokens * 1.4 AS alike
    FROM facts
    JOIN windows USING (place, week)
    JOIN hours ON hours.basis = facts.basis
        AND hours.model = facts.model AND hours.value = facts.value
        AND hours.hour >= begins - INTERVAL 28 DAY AND hours.hour < begins - INTERVAL 59 MINUTE
    WHERE week = 0
),

history AS (
    SELECT
        basis, place, model, value,
        count(*) FILTER (alike) AS hours_alike,
        median(hit_ratio) FILTER (alike) AS alike_ratio,
        (
            quantile_cont(hit_ratio, 0.84) FILTER (alike)
            - quantile_cont(hit_ratio, 0.16) FILTER (alike)
        ) / 2 AS alike_spread_ratio,
        least(regr_slope(hit_ratio, usage_ratio), 0) AS slope,
        median(stray) AS stray,
        max(computed_tokens) AS most_computed_tokens
    FROM beside
    GROUP BY ALL
),

compared AS (
    SELECT
        facts.*, windows.begins,
        usual.hit_ratio AS usual_ratio,
        coalesce(usual.history_weeks, 0) AS history_weeks,
        usual.reported_tokens AS usual_reported_tokens,
        usual.ttft_seconds AS usual_ttft_seconds,
        usual.engine_ttft_seconds AS usual_engine_ttft_seconds,
        usual.coverage_ratio AS usual_coverage_ratio,
        usual.moved_ratio AS usual_moved_ratio,
        usual.scopes_per_session AS usual_scopes,
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
        CASE
            WHEN load_is_known THEN alike_ratio
            ELSE usual.hit_ratio + slope * (facts.usage_ratio - usual.usage_ratio)
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
        most_computed_tokens * coalesce(getvariable('window_seconds'), 3600) / 3600 AS most_computed_tokens
    FROM facts
    JOIN windows USING (place, week)
    LEFT JOIN usual USING (basis, place, model, value)
    LEFT JOIN contributors USING (basis, place, model, value)
    LEFT JOIN history USING (basis, place, model, value)
    CROSS JOIN (
        SELECT max(last_attempt) AS until_moment, bool_and(coalesce(up, false)) AS all_up FROM targets
    ) AS answering
    WHERE week = 0
),

expected AS (
    SELECT
        *,
        least(usual_ratio, at_load_ratio) AS expected_ratio,
        CASE
            WHEN usual_ratio IS NOT NULL THEN 'same hours'
            WHEN load_is_known THEN 'equal pressure'
            ELSE 'none'
        END AS method,
        expected_ratio - hit_ratio AS drop_ratio,
        CASE WHEN usual_ratio > at_load_ratio THEN usual_ratio - at_load_ratio ELSE 0 END
            AS load_part_ratio,
        coalesce(
            ttft_seconds > 1.25 * usual_ttft_seconds,
            engine_ttft_seconds > 1.25 * usual_engine_ttft_seconds
        ) OR reported_tokens - cached_tokens > 0.9 * most_computed_tokens AS hurts,
        drop_ratio / noise_ratio AS deviations
    FROM compared
),

-- What is in evidence, each by the figures that `evidence` names below.
signs AS (
    SELECT
        *,
        coalesce(coverage_ratio < usual_coverage_ratio - 0.2, false) AS counts_lost,
        -- Pages of replicas are not read, and the others have no more to do than usual: where fewer
        -- replicas are meant to be there, they have.
        coalesce(
            replicas <= 0.8 * usual_replicas
            AND reported_tokens / replicas <= 1.15 * usual_reported_tokens / usual_replicas
            AND NOT targets_answer,
            false
        ) AS unread,
        -- Caching is off where it usually is on: those prompts have no ratio.
        coalesce(unasked_ratio > usual_unasked_ratio + 0.2, false) AS switched_off,
        -- Other weights or other settings leave another KV memory.
        coalesce(abs(ln(capacity_tokens / usual_capacity_tokens)) > ln(1.1), false) AS resized,
        -- By counters: one replica's ratio falls and that of the others does not.
        coalesce(
            basis = 'engine' AND part_drop_ratio >= 0.1
            AND others_drop_ratio <= 0.25 * part_drop_ratio,
            false
        ) AS one_fell,
        -- One replica has far more of the load than the busiest usually has.
        coalesce(busiest_share_ratio >= usual_busiest_share_ratio + 0.3, false) AS load_shifted
    FROM expected
),

causes AS (
    SELECT
        *,
        CASE
            WHEN counts_lost OR unread THEN 'telemetry'
            WHEN switched_off THEN 'reuse stopped'
            WHEN hit_ratio < 0.25 * expected_ratio AND NOT is_new_model THEN 'reuse stopped'
            WHEN is_new_model OR resized THEN 'deploy'
            WHEN scopes_per_session >= 0.5 AND scopes_per_session > 2 * usual_scopes THEN 'isolation'
            WHEN moved_ratio >= usual_moved_ratio + 0.15 THEN 'routing spread'
            WHEN resets > usual_resets THEN 'reset'
            WHEN kept_ratio < 0.6 AND is_new_version THEN 'template version or layout'
            WHEN usage_ratio >= usual_usage_ratio + 0.3 THEN 'memory pressure beyond expected'
        END AS cause,
        -- Where a drop came from, which is no evidence that there is one. Counters do not tell
        -- templates apart, but how long prompts are.
        CASE
            WHEN basis = 'engine' THEN CASE
                WHEN one_fell OR load_shifted THEN 'routing spread'
                WHEN abs(ln(tokens_per_request / usual_tokens_per_request)) >= ln(1.15)
                    THEN 'traffic mix'
                ELSE 'no cause found'
            END
            WHEN mix_tokens >= 0.4 * (usual_ratio - hit_ratio) * reported_tokens THEN 'traffic mix'
            WHEN kept_ratio < 0.6 AND own_tokens >= 0.6 * all_own_tokens
                THEN 'template version or layout'
            ELSE 'no cause found'
        END AS shape
    FROM signs
),

-- Where counts are missing, what should have been counted is traffic enough.
guarded AS (
    SELECT
        *,
        method <> 'none' AND (
            cause = 'telemetry' OR switched_off
            OR coalesce(reported_requests >= coalesce(getvariable('min_requests'), 30), true)
        )
        AND CASE
            WHEN cause = 'telemetry' THEN eligible_tokens
            WHEN switched_off THEN reported_tokens + unasked_tokens
            ELSE reported_tokens
        END >= coalesce(getvariable('min_tokens'), 20000) AS can_be_judged
    FROM causes
),

judged AS (
    SELECT
        *,
        CASE
            WHEN can_be_judged THEN
                counts_lost OR unread OR switched_off
                OR coalesce(drop_ratio >= 0.05 AND deviations >= 3.5, false)
                OR coalesce(
                    shape = 'traffic mix' AND drop_ratio >= 0.06 AND deviations >= 2.5, false
                )
                OR coalesce(
                    cause <> 'memory pressure beyond expected'
                    AND drop_ratio >= 0.03 AND deviations >= 1,
                    false
                )
                OR coalesce(cause IS NOT NULL AND drop_ratio >= 0.04 AND deviations >= 2, false)
                -- The slope may explain the fall, but nothing explains a load that was never seen.
                OR coalesce(
                    cause = 'memory pressure beyond expected' AND NOT load_is_known
                    AND usual_ratio - hit_ratio >= greatest(0.1, 3 * chance_ratio),
                    false
                )
        END AS is_drop,
        CASE
            WHEN is_drop THEN coalesce(cause, shape)
            WHEN load_part_ratio >= 0.05 AND usual_ratio - hit_ratio >= 0.05
                THEN 'memory pressure as expected'
        END AS class
    FROM guarded
)

SELECT
    begins AS ts, model, value, basis,
    reported_tokens AS reported_prompt_tokens,
    hit_ratio AS token_hit_ratio,
    coverage_ratio,
    expected_ratio,
    greatest(expected_ratio - 3 * noise_ratio, 0) AS expected_low_ratio,
    least(expected_ratio + 3 * noise_ratio, 1) AS expected_high_ratio,
    history_weeks, method,
    usage_ratio AS pressure_ratio,
    usual_usage_ratio AS usual_pressure_ratio,
    load_part_ratio, drop_ratio, is_drop, class,
    CASE class
        WHEN 'telemetry' THEN CASE
            WHEN counts_lost THEN
                'coverage ' || percent_text(coverage_ratio) || ', usually '
                || percent_text(usual_coverage_ratio)
            ELSE format(
                'pages of {:.1f} replicas were read, usually of {:.1f}, and these had no more to do',
                replicas, usual_replicas
            )
        END
        WHEN 'reuse stopped' THEN CASE
            WHEN switched_off THEN
                'the cache was not asked for ' || percent_text(unasked_ratio)
                || ' of the prompt tokens, usually ' || percent_text(usual_unasked_ratio)
            ELSE
                percent_text(hit_ratio) || ' where ' || percent_text(expected_ratio)
                || ' is expected'
        END
        WHEN 'deploy' THEN CASE
            WHEN resized THEN format(
                'KV memory of {:,} tokens a replica, usually {:,}',
                round(capacity_tokens)::BIGINT, round(usual_capacity_tokens)::BIGINT
            )
            WHEN basis = 'engine' THEN 'engine version ' || fingerprint || ', new in these hours'
            ELSE 'another model fingerprint than in the weeks before'
        END
        WHEN 'isolation' THEN format(
            '{:.2f} scopes a session, usually {:.2f}', scopes_per_session, usual_scopes
        )
        WHEN 'routing spread' THEN CASE
            WHEN one_fell THEN format(
                '{} fell by {:.0f} points, the others by {:.0f}',
                part, 100 * part_drop_ratio, 100 * greatest(others_drop_ratio, 0)
            )
            WHEN load_shifted THEN
                'the busiest replica has ' || percent_text(busiest_share_ratio)
                || ' of the load, usually ' || percent_text(usual_busiest_share_ratio)
            ELSE
                percent_text(moved_ratio) || ' of later turns on another replica than the one'
                || ' before, usually ' || percent_text(usual_moved_ratio)
        END
        WHEN 'reset' THEN
            format('{} resets, usually {}', resets, usual_resets::BIGINT)
        WHEN 'template version or layout' THEN
            'template ' || part || coalesce(' ' || version, '') || ' keeps '
            || percent_text(kept_ratio) || ' of its usual ratio'
        WHEN 'traffic mix' THEN CASE
            WHEN basis = 'engine' THEN format(
                'prompts of {:.0f} tokens in the mean, usually of {:.0f}',
                tokens_per_request, usual_tokens_per_request
            )
            ELSE
                percent_text(ratio(mix_tokens, (usual_ratio - hit_ratio) * reported_tokens))
                || ' of the fall is another mix of templates'
        END
        ELSE CASE
            WHEN class LIKE 'memory%' THEN
                'KV usage ' || percent_text(usage_ratio) || ', usually '
                || percent_text(usual_usage_ratio)
        END
    END AS evidence,
    CASE WHEN own_tokens > 0 THEN concat_ws(' ', nullif(part, ''), version) END AS contributor,
    CASE WHEN own_tokens > 0 THEN own_tokens / all_own_tokens END AS contributor_share_ratio,
    hurts,
    CASE
        WHEN is_drop IS NOT TRUE THEN NULL
        WHEN
            hurts AND history_weeks > 0
            AND CASE class
                WHEN 'telemetry' THEN false
                -- What a load never seen does to the ratio is not known well enough to wake anybody.
                WHEN 'memory pressure beyond expected' THEN load_is_known AND deviations >= 3.5
                -- Other prompts are no fault, unless they come on top.
                WHEN 'traffic mix' THEN
                    deviations >= 3.5 AND reported_tokens >= 1.4 * usual_reported_tokens
                WHEN 'no cause found' THEN drop_ratio >= 0.15 AND deviations >= 5
                ELSE true
            END
            THEN 'page'
        ELSE 'ticket'
    END AS severity
FROM judged
ORDER BY place, model, value;
