/*
name: prefill
question: How much prefill was done, how much did the cache save, and what is that in time?
grain: one row, or one per value of `by`; most saved tokens first
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica, route, template, tenant], meaning: "One row per value; one row for all if not set."}
filters: [since, until, model, replica, route, template, tenant]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  computed_tokens: {type: BIGINT, unit: tokens, meaning: "Reported prompt tokens less cached tokens: what prefill did."}
  saved_tokens: {type: BIGINT, unit: tokens, meaning: "Cached tokens: what prefill did not have to do."}
  saved_seconds: {type: DOUBLE, unit: seconds, meaning: "Estimate: saved tokens / prefill speed of their replica over all rows kept; NULL without any speed."}
  unpriced_saved_tokens: {type: BIGINT, unit: tokens, meaning: "Saved tokens whose replica has no known prefill speed; not in saved_seconds."}
*/
WITH savings AS (
    FROM prefill_savings(
        getvariable('by'), getvariable('since'), getvariable('until'),
        getvariable('model'), getvariable('replica'), getvariable('route'),
        getvariable('template'), getvariable('tenant')
    )
    UNION ALL BY NAME
    SELECT NULL AS value WHERE getvariable('by') IS NULL  -- one row even without traffic
)

SELECT
    CASE WHEN getvariable('by') IS NOT NULL THEN coalesce(value, '') END AS value,
    total(computed_tokens) AS computed_tokens,
    total(saved_tokens) AS saved_tokens,
    sum(saved_seconds) AS saved_seconds,
    total(CASE WHEN saved_seconds IS NULL THEN saved_tokens END) AS unpriced_saved_tokens
FROM savings
GROUP BY ALL
ORDER BY saved_tokens DESC, value;
