/*
name: serving
question: How many replicas served the requests at once, and with which block?
grain: one row per model with requests
filters: [since, until, model]
columns:
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests with prompt tokens, decode replicas left out."}
  named_requests: {type: BIGINT, unit: requests, meaning: "Of them those that name their replica."}
  replicas: {type: BIGINT, unit: count, meaning: "Replicas they name within an hour: of the hour in which the middle one of these requests falls, by number of replicas; NULL where none is named."}
  block_tokens: {type: BIGINT, unit: tokens, meaning: "Block that most requests state; NULL where none does."}
*/
WITH served AS (
    SELECT
        coalesce(model, '') AS model, replica, block_size, time_bucket(INTERVAL 1 HOUR, ts) AS hour
    FROM requests
    WHERE
        in_window(ts, getvariable('since'), getvariable('until'))
        AND prompt_tokens > 0
        AND replica_role IS DISTINCT FROM 'decode'
        AND matches(coalesce(model, ''), getvariable('model'))
),

hours AS (
    SELECT model, hour, count(*) AS requests, count(DISTINCT replica) AS replicas
    FROM served
    WHERE replica IS NOT NULL
    GROUP BY model, hour
),

-- Pods come and go: all that were ever named are more than what served at once.
ranked AS (
    SELECT
        model, replicas,
        sum(requests) OVER (PARTITION BY model ORDER BY replicas, hour) AS requests_so_far,
        sum(requests) OVER (PARTITION BY model) AS all_requests
    FROM hours
),

middle AS (
    SELECT model, min(replicas) FILTER (2 * requests_so_far >= all_requests) AS replicas
    FROM ranked
    GROUP BY model
)

SELECT
    model,
    count(*) AS requests,
    count(replica) AS named_requests,
    any_value(middle.replicas) AS replicas,
    mode(block_size)::BIGINT AS block_tokens
FROM served
LEFT JOIN middle USING (model)
GROUP BY model
ORDER BY requests DESC, model;
