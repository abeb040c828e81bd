-- How causes of missed tokens changed between two windows, for the questions missed_change and alerts.
-- All four borders are given. Template and tenant are kept by whole hours: their windows begin with the
-- hour they begin in. `models_apart`: one group per model and value, else all models together ('').
CREATE OR REPLACE MACRO missed_changes(
    dimension, models_apart, baseline_since_border, baseline_until_border,
    since_border, until_border,
    wanted_model, wanted_replica, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH selected AS (
    SELECT
        * REPLACE (CASE WHEN models_apart THEN model ELSE '' END AS model),
        CASE
            WHEN dimension IS NULL THEN ''
            ELSE log_dimension(dimension, own.model, replica, route, template, tenant)
        END AS value
    FROM cause_sums AS own
    WHERE
        (
            (ts >= date_trunc('hour', since_border) AND ts < until_border)
            OR (ts >= date_trunc('hour', baseline_since_border) AND ts < baseline_until_border)
        )
        AND causes_answer(kept_as, dimension, wanted_template, wanted_tenant)
        AND matches(own.model, wanted_model)
        AND matches(replica, wanted_replica)
        AND matches(route, wanted_route)
        AND matches(template, wanted_template)
        AND matches(tenant, wanted_tenant)
),

sums AS (
    SELECT
        model, value, is_now,
        total(prompt_tokens) AS prompt_tokens,
        total(prompt_tokens) + total(chainless_prompt_tokens) + total(late_prompt_tokens)
            AS reported_tokens,
        total(prompt_tokens) - total(cached_tokens) AS missed_tokens,
        cause_totals(selected) AS causes
    FROM selected, (VALUES (true), (false)) AS windows (is_now)
    WHERE
        ts < CASE WHEN is_now THEN until_border ELSE baseline_until_border END
        -- What a minute or an hour is kept as is its unit too.
        AND ts >= date_trunc(
            kept_as, CASE WHEN is_now THEN since_border ELSE baseline_since_border END
        )
    GROUP BY ALL
),

entries AS (
    SELECT
        model, value, is_now, prompt_tokens,
        ratio(missed_tokens, prompt_tokens) AS missed_ratio,
        ratio(prompt_tokens, reported_tokens) AS explained_ratio,
        unnest(causes, recursive := true)
    FROM sums
),

-- Without explained requests in a window its shares are NULL, and so is the change.
paired AS (
    SELECT
        model, value, cause,
        total(CASE WHEN is_now THEN tokens END) AS tokens,
        total(CASE WHEN NOT is_now THEN tokens END) AS tokens_before,
        ratio(sum(tokens) FILTER (is_now), sum(prompt_tokens) FILTER (is_now)) AS prompt_ratio,
        ratio(sum(tokens) FILTER (NOT is_now), sum(prompt_tokens) FILTER (NOT is_now))
            AS prompt_ratio_before,
        prompt_ratio - prompt_ratio_before AS change_ratio,
        max(missed_ratio) FILTER (is_now) - max(missed_ratio) FILTER (NOT is_now)
            AS missed_change_ratio,
        max(explained_ratio) FILTER (is_now) AS explained_ratio,
        max(explained_ratio) FILTER (NOT is_now) AS explained_ratio_before
    FROM entries
    GROUP BY ALL
),

ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY model, value ORDER BY change_ratio DESC NULLS LAST, tokens DESC, cause
        ) AS place
    FROM paired
)

SELECT
    * EXCLUDE (place),
    -- A small part of the traffic says little about a drop of all of it.
    coalesce(
        place <= 3 AND change_ratio >= 0.01 AND missed_change_ratio >= 0.01
        AND least(explained_ratio, explained_ratio_before) >= 0.5,
        false
    ) AS is_evidence,
    CASE
        WHEN is_evidence THEN concat(
            cause, ' ', percent_text(prompt_ratio_before), ' → ', percent_text(prompt_ratio)
        )
    END AS evidence
FROM ranked
WHERE tokens > 0 OR tokens_before > 0;
