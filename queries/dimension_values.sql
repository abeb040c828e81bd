/*
name: dimension_values
question: Which values does a dimension have, largest first?
grain: one row per value, also those only engine samples know
params:
  dimension: {type: VARCHAR, default: null, required: true, one_of: [model, replica, route, template, template_version, tenant, source], meaning: "The dimension."}
filters: [since, until, model, replica, route, template, tenant]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens of its requests; 0 if only engines know it."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests; 0 if only engines know it."}
*/
WITH selected AS (
    SELECT
        CASE
            WHEN getvariable('dimension') IS NULL THEN error('set the variable dimension')
            ELSE value
        END AS value,
        prompt_tokens, requests
    FROM asked_traffic(
        getvariable('dimension'), getvariable('since'), getvariable('until'),
        getvariable('model'), getvariable('replica'), getvariable('route'),
        getvariable('template'), getvariable('tenant')
    )
    UNION ALL
    SELECT DISTINCT
        CASE getvariable('dimension') WHEN 'model' THEN model WHEN 'replica' THEN replica END
            AS value,
        0 AS prompt_tokens, 0 AS requests
    FROM engine_traffic
    WHERE
        getvariable('dimension') IN ('model', 'replica')
        AND reaches_into(since, ts, getvariable('since'), getvariable('until'))
        AND matches(model, getvariable('model'))
        AND matches(replica, getvariable('replica'))
        AND coalesce(getvariable('route'), getvariable('template'), getvariable('tenant')) IS NULL
)

SELECT
    coalesce(value, '') AS value,
    total(prompt_tokens) AS prompt_tokens,
    total(requests) AS requests
FROM selected
GROUP BY ALL
ORDER BY prompt_tokens DESC, requests DESC, value;
