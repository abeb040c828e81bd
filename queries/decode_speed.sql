/*
name: decode_speed
question: How long does each replica take for a generated token, and of how many requests is that known?
grain: one row per replica and model with requests of at least two generated tokens
filters: [since, until, model, replica]
columns:
  replica: {type: VARCHAR, unit: name, meaning: "Replica, '' if requests do not name it."}
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests of at least two generated tokens."}
  told_requests: {type: BIGINT, unit: requests, meaning: "Of them those whose times of first and last token are known: streamed, and not in one piece (at 0.2 ms a token and more: no engine is faster)."}
  coverage_ratio: {type: DOUBLE, unit: ratio, meaning: "told_requests / requests."}
  seconds_per_token: {type: DOUBLE, unit: seconds per token, meaning: "Median over these of (end - first token) / (output tokens - 1), under the load there was; NULL below 20 of them."}
  low_seconds_per_token: {type: DOUBLE, unit: seconds per token, meaning: "A quarter of them took less."}
  high_seconds_per_token: {type: DOUBLE, unit: seconds per token, meaning: "A quarter of them took more."}
*/
WITH decoded AS (
    SELECT
        coalesce(replica, '') AS replica,
        coalesce(model, '') AS model,
        output_tokens - 1 AS following_tokens,
        -- From the start; a clock that begins when the engine schedules leaves the queue out.
        CASE
            WHEN stream IS NOT DISTINCT FROM false THEN NULL
            WHEN ttft_point = 'engine_scheduled' THEN e2e_seconds - queue_seconds - ttft_seconds
            ELSE e2e_seconds - ttft_seconds
        END AS seconds
    FROM requests
    WHERE
        in_window(ts, getvariable('since'), getvariable('until'))
        AND output_tokens >= 2
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(coalesce(replica, ''), getvariable('replica'))
),

speeds AS (
    SELECT
        replica, model,
        count(*) AS requests,
        count(seconds_per_token) AS told_requests,
        quantile_cont(seconds_per_token, [0.25, 0.5, 0.75]) AS quartiles
    FROM (
        SELECT
            *,
            -- Faster than that is a stream that a busy server or proxy held back and sent at once.
            CASE WHEN seconds / following_tokens >= 0.0002 THEN seconds / following_tokens END
                AS seconds_per_token
        FROM decoded
    )
    GROUP BY replica, model
)

SELECT
    replica, model, requests, told_requests,
    told_requests / requests AS coverage_ratio,
    CASE WHEN told_requests >= 20 THEN quartiles[2] END AS seconds_per_token,
    CASE WHEN told_requests >= 20 THEN quartiles[1] END AS low_seconds_per_token,
    CASE WHEN told_requests >= 20 THEN quartiles[3] END AS high_seconds_per_token
FROM speeds
ORDER BY replica, model;
