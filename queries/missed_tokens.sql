/*
name: missed_tokens
question: Why did tokens miss?
grain: one row per cause that has tokens, or per value of `by` and cause; most tokens first
params:
  by: {type: VARCHAR, default: null, one_of: [model, route, template, tenant, replica], meaning: "One row per value and cause; one row per cause if not set."}
  since: {type: TIMESTAMP, default: null, meaning: "Start of the window, inclusive; all time if not set. Template and tenant are kept by whole hours, which count by their start."}
  replica: {type: VARCHAR, default: null, meaning: "Only this replica; not together with template or tenant, of which nothing is kept by replica."}
filters: [until, model, route, template, tenant]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  cause: {type: VARCHAR, unit: name, meaning: "Why, as docs/causes.md says. new: not seen within the horizon, or as far back as waterfall says that it is remembered."}
  tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens that missed for this cause, of requests with a cached count and a chain, once their minute is sealed: two minutes late."}
  missed_ratio: {type: DOUBLE, unit: ratio, meaning: "tokens / all missed tokens of the value."}
  prompt_ratio: {type: DOUBLE, unit: ratio, meaning: "tokens / prompt tokens of the value's requests that have causes."}
*/
WITH selected AS (
    FROM asked_causes(
        getvariable('by'), getvariable('since'), getvariable('until'),
        getvariable('model'), getvariable('replica'), getvariable('route'),
        getvariable('template'), getvariable('tenant')
    )
),

sums AS (
    SELECT
        CASE WHEN getvariable('by') IS NOT NULL THEN coalesce(value, '') END AS value,
        total(prompt_tokens) AS prompt_tokens,
        total(cached_tokens) AS cached_tokens,
        cause_totals(selected) AS causes
    FROM selected
    GROUP BY ALL
),

entries AS (
    SELECT value, prompt_tokens, cached_tokens, unnest(causes, recursive := true)
    FROM sums
)

SELECT
    value,
    cause,
    tokens,
    ratio(tokens, prompt_tokens - cached_tokens) AS missed_ratio,
    ratio(tokens, prompt_tokens) AS prompt_ratio
FROM entries
WHERE tokens > 0
ORDER BY tokens DESC, value, cause;
