-- How windows are judged, each for itself: what is expected, what is in evidence, whether there is a
-- drop, its class and its severity. What the columns mean says the header of peak_drop.
CREATE OR REPLACE MACRO drops_alone(
    dimension, since_border, until_border, window_seconds, zone, least_tokens, least_requests,
    wanted_model, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH expected AS (
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
        -- Only where first tokens are timed.
        CASE
            WHEN coalesce(ttft_seconds, engine_ttft_seconds) IS NOT NULL THEN
                coalesce(
                    ttft_seconds > 1.25 * usual_ttft_seconds,
                    engine_ttft_seconds > 1.25 * usual_engine_ttft_seconds,
                    false
                ) OR coalesce(reported_tokens - cached_tokens > 0.9 * most_computed_tokens, false)
        END AS hurts,
        drop_ratio / noise_ratio AS deviations
    FROM drop_figures(
        dimension, since_border, until_border, window_seconds, zone, least_tokens,
        wanted_model, wanted_route, wanted_template, wanted_tenant
    )
),

-- What is in evidence, each by the figures that `evidence` names below.
signs AS (
    SELECT
        *,
        coalesce(coverage_ratio < usual_coverage_ratio - 0.2, false) AS counts_lost,
        coalesce(hit_ratio < 0.25 * expected_ratio, false) AS collapsed,
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
            WHEN collapsed AND dimension = 'template' AND is_new_version
                THEN 'template version or layout'
            WHEN collapsed AND NOT is_new_model THEN 'reuse stopped'
            WHEN is_new_model OR resized THEN 'deploy'
            WHEN scopes_per_session >= 0.5 AND scopes_per_session > 2 * usual_scopes THEN 'isolation'
            WHEN moved_ratio >= usual_moved_ratio + 0.15 THEN 'routing spread'
            -- One of many that restarts explains little.
            WHEN resets - usual_resets >= greatest(1, 0.25 * known_replicas) THEN 'reset'
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
        END AS shape,
        -- So far that no cause need be in evidence. Of the many routes, templates and tenants one
        -- strays so far now and then.
        coalesce(
            drop_ratio >= 0.15 AND deviations >= 5 AND coalesce(dimension = 'model', true), false
        ) AS far_alone,
        shape <> 'traffic mix'
        AND coalesce(turns_part_ratio >= 0.4 * (usual_ratio - hit_ratio), false) AS more_first_turns
    FROM signs
),

-- Where counts are missing, what should have been counted is traffic enough.
guarded AS (
    SELECT
        *,
        method <> 'none' AND (
            cause = 'telemetry' OR switched_off
            OR coalesce(reported_requests >= least_requests, true)
            -- That a template hits next to nothing shows sooner.
            OR (dimension = 'template' AND cause IS NOT NULL AND collapsed
                AND reported_requests >= least_requests / 3)
        )
        AND CASE
            WHEN cause = 'telemetry' THEN eligible_tokens
            WHEN switched_off THEN reported_tokens + unasked_tokens
            ELSE reported_tokens
        END >= least_tokens AS can_be_judged
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
            WHEN cause IS NULL AND is_drop AND more_first_turns THEN 'traffic mix'
            WHEN is_drop THEN coalesce(cause, shape)
            WHEN
                load_part_ratio >= 0.05 AND usual_ratio - hit_ratio >= 0.05
                AND usage_ratio IS NOT NULL AND usual_usage_ratio IS NOT NULL
                THEN 'memory pressure as expected'
        END AS class
    FROM guarded
),

-- The log may know a model by another name than its engines: then it tells of the same drop.
named AS (
    SELECT EXISTS (
        SELECT 1
        FROM requests
        JOIN (
            SELECT min(begins) AS first_begin, max(ends) AS last_end
            FROM drop_windows(since_border, until_border, window_seconds, zone)
            WHERE week = 0 AND is_asked
        ) ON ts >= first_begin AND ts < last_end
        WHERE
            is_reported(prompt_tokens, cached_tokens, ineligible_reason)
            AND coalesce(model, '') NOT IN (SELECT coalesce(model, '') FROM engine_own)
            AND (
                since_border IS NULL OR until_border IS NULL
                OR near_drop_windows(ts, since_border, until_border, window_seconds, 0)
            )
    ) AS log_names_others
)

SELECT
    place, is_asked, cause, noise_ratio, begins AS ts, model, value, basis,
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
            format('{} {}, usually {}', resets, CASE WHEN resets = 1 THEN 'reset' ELSE 'resets' END,
                usual_resets::BIGINT)
        WHEN 'template version or layout' THEN
            'template ' || part || coalesce(' ' || version, '') || coalesce(
                ' keeps ' || percent_text(kept_ratio) || ' of its usual ratio',
                ' hits ' || percent_text(hit_ratio) || ' where ' || percent_text(expected_ratio)
                || ' is expected'
            )
        WHEN 'traffic mix' THEN CASE
            WHEN more_first_turns THEN
                'first turns have ' || percent_text(first_turns_ratio) || ' of the tokens, usually '
                || percent_text(usual_first_turns_ratio)
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
            AND NOT (basis = 'engine' AND log_names_others)
            -- Smaller ones with a cause in evidence are tickets.
            AND (switched_off OR (drop_ratio >= 0.05 AND deviations >= 3.5))
            AND CASE class
                WHEN 'telemetry' THEN false
                -- What a load never seen does to the ratio is not known well enough to wake anybody.
                WHEN 'memory pressure beyond expected' THEN load_is_known AND deviations >= 3.5
                -- Other prompts are no fault, unless they come on top.
                WHEN 'traffic mix' THEN
                    deviations >= 3.5 AND reported_tokens >= 1.4 * usual_reported_tokens
                WHEN 'template version or layout' THEN cause IS NOT NULL OR far_alone
                WHEN 'no cause found' THEN far_alone
                ELSE true
            END
            THEN 'page'
        ELSE 'ticket'
    END AS severity
FROM judged
CROSS JOIN named;
