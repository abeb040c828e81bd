/*
name: movers
question: Where did the token hit ratio move against the time before, and what did that cost?
grain: one row per value of `by` with traffic in either window; largest change in tokens first
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica, route, template, template_version, tenant, source], required: true, meaning: "The dimension to compare along."}
  baseline_since: {type: TIMESTAMP, default: null, meaning: "Start of the baseline; if neither border is set, the window of equal length just before."}
  baseline_until: {type: TIMESTAMP, default: null, meaning: "End of the baseline, exclusive; the start of the window if not set."}
  since: {type: TIMESTAMP, default: null, meaning: "Start of the window, inclusive; all time if not set."}
  until: {type: TIMESTAMP, default: null, meaning: "End of the window, exclusive; open if not set."}
  model: {type: VARCHAR, default: null, meaning: "Only this model; '' is \"not given\"."}
  replica: {type: VARCHAR, default: null, meaning: "Only this replica."}
  route: {type: VARCHAR, default: null, meaning: "Only this route."}
  template: {type: VARCHAR, default: null, meaning: "Only this template."}
  tenant: {type: VARCHAR, default: null, meaning: "Only this tenant."}
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Every input token in the window."}
  token_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "Cached / reported prompt tokens in the window."}
  coverage_ratio: {type: DOUBLE, unit: ratio, meaning: "Reported / eligible prompt tokens in the window."}
  computed_tokens: {type: BIGINT, unit: tokens, meaning: "Reported prompt tokens less cached tokens in the window."}
  prompt_tokens_before: {type: BIGINT, unit: tokens, meaning: "The same in the baseline."}
  token_hit_ratio_before: {type: DOUBLE, unit: ratio, meaning: "The same in the baseline."}
  coverage_ratio_before: {type: DOUBLE, unit: ratio, meaning: "The same in the baseline."}
  computed_tokens_before: {type: BIGINT, unit: tokens, meaning: "The same in the baseline."}
  change_ratio: {type: DOUBLE, unit: ratio, meaning: "token_hit_ratio - token_hit_ratio_before; NULL if either has no data."}
  extra_computed_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens computed in the window because the ratio changed: -change_ratio x reported prompt tokens now."}
*/
WITH borders AS (
    SELECT
        coalesce(
            getvariable('baseline_since'),
            CASE
                WHEN getvariable('baseline_until') IS NOT NULL THEN TIMESTAMP '-infinity'
                ELSE getvariable('since')::TIMESTAMP
                    - (coalesce(getvariable('until'), max(ts)) - getvariable('since')::TIMESTAMP)
            END
        ) AS before_since,
        coalesce(getvariable('baseline_until'), getvariable('since')) AS before_until
    FROM traffic
    WHERE answers(kept_as, getvariable('by'), getvariable('replica'))
),

selected AS (
    SELECT
        CASE
            WHEN getvariable('by') IS NULL THEN error('set the variable by')
            WHEN getvariable('by') = 'model' THEN model
            WHEN getvariable('by') = 'replica' THEN replica
            WHEN getvariable('by') = 'route' THEN route
            WHEN getvariable('by') = 'template' THEN template
            WHEN getvariable('by') = 'template_version' THEN template_version
            WHEN getvariable('by') = 'tenant' THEN tenant
            WHEN getvariable('by') = 'source' THEN source
            ELSE error('unknown dimension ' || getvariable('by'))
        END AS value,
        in_window(ts, getvariable('since'), getvariable('until')) AS is_now,
        -- All time has nothing before it.
        coalesce(ts >= before_since AND ts < before_until, false) AS is_before,
        prompt_tokens, ineligible_prompt_tokens, reported_prompt_tokens, cached_tokens
    FROM traffic, borders
    WHERE
        (is_now OR is_before)
        AND answers(kept_as, getvariable('by'), getvariable('replica'))
        AND matches(model, getvariable('model'))
        AND matches(replica, getvariable('replica'))
        AND matches(route, getvariable('route'))
        AND matches(template, getvariable('template'))
        AND matches(tenant, getvariable('tenant'))
),

sums AS (
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
    GROUP BY ALL
)

SELECT
    value,
    prompt_tokens,
    ratio(cached_tokens, reported_tokens) AS token_hit_ratio,
    ratio(reported_tokens, prompt_tokens - ineligible_tokens) AS coverage_ratio,
    reported_tokens - cached_tokens AS computed_tokens,
    prompt_tokens_before,
    ratio(cached_tokens_before, reported_tokens_before) AS token_hit_ratio_before,
    ratio(reported_tokens_before, prompt_tokens_before - ineligible_tokens_before)
        AS coverage_ratio_before,
    reported_tokens_before - cached_tokens_before AS computed_tokens_before,
    token_hit_ratio - token_hit_ratio_before AS change_ratio,
    round(-change_ratio * reported_tokens)::BIGINT AS extra_computed_tokens
FROM sums
ORDER BY abs(extra_computed_tokens) DESC NULLS LAST, prompt_tokens DESC, value;
