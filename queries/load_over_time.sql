/*
name: load_over_time
question: How much work came and was done, and did requests wait?
grain: one row per step with traffic or samples
params:
  step_seconds: {type: BIGINT, default: null, minimum: 1, meaning: "Length of a step; if not set, the shortest round one with at most 300 points. Never finer than what is kept."}
filters: [since, until, model, replica, route, template, tenant]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "Start of the step, UTC."}
  computed_tokens_per_second: {type: DOUBLE, unit: tokens per second, meaning: "Prefill done; NULL where a cached count is unknown (basis log: of reported requests)."}
  prompt_tokens_per_second: {type: DOUBLE, unit: tokens per second, meaning: "Prompt tokens that came."}
  running_requests: {type: DOUBLE, unit: requests, meaning: "Mean number running, all replicas; NULL if basis is log."}
  waiting_requests: {type: DOUBLE, unit: requests, meaning: "Mean number waiting, all replicas; NULL if basis is log."}
  kv_usage_ratio: {type: DOUBLE, unit: ratio, meaning: "KV share held by running requests, weighted by capacity; NULL if basis is log."}
  basis: {type: VARCHAR, unit: name, meaning: "engine, or log where engines count no prompt tokens, were watched for so little of the window that more came outside that time, or the filters name what they do not know."}
*/
WITH watched AS (
    SELECT
        min(coalesce(since, ts)) AS begun,
        max(ts) AS ended,
        sum(
            prompt_tokens
            * overlap_share(since, ts, getvariable('since'), getvariable('until'))
        ) AS prompt_tokens
    FROM engine_traffic
    WHERE
        prompt_tokens IS NOT NULL
        AND reaches_into(since, ts, getvariable('since'), getvariable('until'))
        AND matches(model, getvariable('model'))
        AND matches(replica, getvariable('replica'))
),

asked AS (
    SELECT ts, kept_as, prompt_tokens, reported_prompt_tokens, cached_tokens
    FROM asked_traffic(
        NULL, getvariable('since'), getvariable('until'),
        getvariable('model'), getvariable('replica'), getvariable('route'),
        getvariable('template'), getvariable('tenant')
    )
),

-- What came before the engines were watched, or after: rows of the last minutes are only not sampled
-- yet.
unwatched AS (
    SELECT total(asked.prompt_tokens) AS prompt_tokens
    FROM asked, watched
    WHERE asked.ts < begun OR asked.ts >= ended + INTERVAL 5 MINUTE
),

basis AS (
    SELECT
        CASE
            WHEN watched.prompt_tokens >= unwatched.prompt_tokens AND coalesce(
                getvariable('route'), getvariable('template'), getvariable('tenant')
            ) IS NULL THEN 'engine'
            ELSE 'log'
        END AS basis
    FROM watched, unwatched
),

logged AS (
    SELECT asked.* FROM asked, basis WHERE basis = 'log'
),

step AS (
    SELECT
        CASE
            WHEN (SELECT basis FROM basis) = 'engine' THEN engine_step(
                getvariable('step_seconds'), getvariable('since'), getvariable('until')
            )
            ELSE log_step(
                getvariable('step_seconds'), getvariable('since'), getvariable('until'),
                ts, kept_seconds(kept_as)
            )
        END AS seconds
    FROM logged
),

work AS (
    SELECT
        step_start AS step_ts,
        sum(prompt_tokens) AS prompt_tokens,
        CASE WHEN count(prefilled_tokens) = count(prompt_tokens) THEN sum(prefilled_tokens) END
            AS computed_tokens
    FROM engine_cells(
        getvariable('since'), getvariable('until'),
        engine_step(
            getvariable('step_seconds'), getvariable('since'), getvariable('until')
        ),
        getvariable('model'), getvariable('replica')
    ), basis
    WHERE basis = 'engine'
    GROUP BY ALL
    UNION ALL
    SELECT
        time_bucket(to_seconds(seconds), ts) AS step_ts,
        total(prompt_tokens) AS prompt_tokens,
        sum(reported_prompt_tokens) - sum(cached_tokens) AS computed_tokens
    FROM logged, step
    GROUP BY ALL
),

replica_gauges AS (
    SELECT
        -- A sample at a border belongs to the interval it ends.
        time_bucket(to_seconds(seconds), ts - INTERVAL 1 MICROSECOND) AS step_ts,
        replica,
        avg(running_requests) AS running_requests,
        avg(waiting_requests) AS waiting_requests,
        avg(kv_usage_ratio) AS kv_usage_ratio,
        avg(CASE WHEN kv_usage_ratio IS NOT NULL THEN kv_capacity_tokens END) AS capacity_tokens
    FROM engine_own, step, basis
    WHERE
        basis = 'engine'
        AND in_window(
            ts - INTERVAL 1 MICROSECOND, getvariable('since'), getvariable('until')
        )
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
    GROUP BY ALL
),

gauges AS (
    SELECT
        step_ts,
        sum(running_requests) AS running_requests,
        sum(waiting_requests) AS waiting_requests,
        coalesce(
            ratio(sum(kv_usage_ratio * capacity_tokens), sum(capacity_tokens)),
            avg(kv_usage_ratio)
        ) AS kv_usage_ratio
    FROM replica_gauges
    GROUP BY step_ts
),

last AS (
    SELECT coalesce(
        (SELECT max(ts) FROM logged),
        (SELECT least(max(ts), coalesce(getvariable('until'), max(ts))) FROM engine_own)
    ) AS last_moment
),

-- The first and the last step are measured by the part that is covered, at least a quarter, so
-- that an unfinished step is no dip and a single request no peak.
covered AS (
    SELECT
        work.*,
        greatest(
            seconds / 4,
            epoch(
                least(step_ts + to_seconds(seconds), last_moment)
                - greatest(step_ts, coalesce(getvariable('since'), step_ts))
            )
        ) AS covered_seconds
    FROM work, step, last
)

SELECT
    step_ts AS ts,
    computed_tokens / covered_seconds AS computed_tokens_per_second,
    prompt_tokens / covered_seconds AS prompt_tokens_per_second,
    running_requests, waiting_requests, kv_usage_ratio,
    (SELECT basis FROM basis) AS basis
FROM covered
FULL JOIN gauges USING (step_ts)
ORDER BY ts;
