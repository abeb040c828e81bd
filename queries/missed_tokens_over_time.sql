/*
name: missed_tokens_over_time
question: How did the causes of missed tokens move?
grain: one row per bucket and cause that has tokens, or per bucket, value of `by` and cause
params:
  by: {type: VARCHAR, default: null, one_of: [model, route, template, tenant, replica], meaning: "One row per bucket, value and cause; one row per bucket and cause if not set."}
  step_seconds: {type: BIGINT, default: null, minimum: 1, meaning: "Length of a bucket; if not set, the shortest round one with at most 300 points. Never finer than what is kept."}
  since: {type: TIMESTAMP, default: null, meaning: "Start of the window, inclusive; all time if not set. Template and tenant are kept by whole hours, which count by their start."}
  replica: {type: VARCHAR, default: null, meaning: "Only this replica; not together with template or tenant, of which nothing is kept by replica."}
filters: [until, model, route, template, tenant]
columns:
  bucket: {type: TIMESTAMP, unit: time, meaning: "Start of the bucket, UTC. The last two minutes are not sealed yet."}
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  cause: {type: VARCHAR, unit: name, meaning: "Why, as docs/causes.md says."}
  tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens that missed for this cause."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens of all requests of the bucket and value that have causes, cached or not."}
*/
WITH selected AS (
    FROM asked_causes(
        getvariable('by'), getvariable('since'), getvariable('until'),
        getvariable('model'), getvariable('replica'), getvariable('route'),
        getvariable('template'), getvariable('tenant')
    )
),

step AS (
    SELECT
        log_step(
            getvariable('step_seconds'), getvariable('since'), getvariable('until'),
            ts, kept_seconds(kept_as)
        ) AS seconds
    FROM selected
),

sums AS (
    SELECT
        time_bucket(to_seconds(seconds), ts) AS bucket,
        CASE WHEN getvariable('by') IS NOT NULL THEN coalesce(value, '') END AS value,
        total(prompt_tokens) AS prompt_tokens,
        cause_totals(selected) AS causes
    FROM selected, step
    GROUP BY ALL
),

entries AS (
    SELECT bucket, value, prompt_tokens, unnest(causes, recursive := true)
    FROM sums
)

SELECT bucket, value, cause, tokens, prompt_tokens
FROM entries
WHERE tokens > 0
ORDER BY bucket, value, tokens DESC, cause;
