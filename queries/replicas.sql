/*
name: replicas
question: How is each replica doing, and which stands out?
grain: one row per replica engine samples know, and per target that is no engine or never answered; trouble first, engines before other programs
filters: [since, until, model, replica]
columns:
  replica: {type: VARCHAR, unit: name, meaning: "Replica; the target where it never answered."}
  target: {type: VARCHAR, unit: name, meaning: "Metric page it comes from."}
  engine: {type: VARCHAR, unit: name, meaning: "Program behind the page (see docs/engines); NULL if not known yet."}
  observer: {type: VARCHAR, unit: name, meaning: "engine; or kv_store, router or gateway, which are no replicas; NULL if not known yet."}
  version: {type: VARCHAR, unit: name, meaning: "Version of the engine, where it says."}
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  role: {type: VARCHAR, unit: name, meaning: "unified, prefill or decode; decode replicas have no hit ratio."}
  up: {type: BOOLEAN, unit: flag, meaning: "Did the last scrape succeed? NULL where targets are not scraped."}
  last_success: {type: TIMESTAMP, unit: time, meaning: "Last good scrape."}
  error: {type: VARCHAR, unit: text, meaning: "Why the last scrape failed."}
  missing_metrics: {type: "VARCHAR[]", unit: name, meaning: "Metrics the page should have and has not."}
  missing_advice: {type: "VARCHAR[]", unit: text, meaning: "Of each what to do."}
  frozen: {type: BOOLEAN, unit: flag, meaning: "Counters stand still while traffic flows."}
  caching_enabled: {type: BOOLEAN, unit: flag, meaning: "What the engine says; NULL if it does not."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Increase in the window."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "Increase in the window."}
  token_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "As in engine_hit_ratio."}
  computed_tokens_per_second: {type: DOUBLE, unit: tokens per second, meaning: "Prefill done / time measured."}
  kv_usage_ratio: {type: DOUBLE, unit: ratio, meaning: "KV share held by running requests, latest sample; NULL of what has not answered since."}
  running_requests: {type: BIGINT, unit: requests, meaning: "Latest sample; NULL of what has not answered since."}
  waiting_requests: {type: BIGINT, unit: requests, meaning: "Latest sample; NULL of what has not answered since."}
  resets: {type: BIGINT, unit: count, meaning: "Restarts in the window."}
  outlier_score: {type: DOUBLE, unit: score, meaning: "Largest distance of hit ratio, KV use or prefill rate from the median of the model's replicas, in robust deviations; NULL below three replicas."}
*/
WITH latest AS (
    SELECT
        replica,
        max(ts) AS newest,
        arg_max(target, ts) AS target,
        arg_max(engine, ts) AS engine,
        arg_max_null(version, ts) AS version,
        coalesce(arg_max_null(model, ts), '') AS model,
        arg_max(role, ts) AS role,
        arg_max_null(caching_enabled, ts) AS caching_enabled,
        arg_max_null(kv_usage_ratio, ts) AS kv_usage_ratio,
        arg_max_null(running_requests, ts) AS running_requests,
        arg_max_null(waiting_requests, ts) AS waiting_requests,
        count(*) FILTER (reset) AS resets
    FROM engine_own
    WHERE
        in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
    GROUP BY replica
),

work AS (
    SELECT
        replica,
        sum(prompt_tokens)::BIGINT AS prompt_tokens,
        sum(cached_tokens)::BIGINT AS cached_tokens,
        counter_ratio(
            sum(reported_cached_tokens) FILTER (NOT ineligible),
            sum(reported_prompt_tokens) FILTER (NOT ineligible)
        ) AS token_hit_ratio,
        ratio(sum(prefilled_tokens), sum(measured_seconds)) AS computed_tokens_per_second
    FROM engine_cells(
        getvariable('since'), getvariable('until'), NULL,
        getvariable('model'), getvariable('replica')
    )
    GROUP BY replica
),

other_observers AS (
    SELECT target, any_value(observer) AS observer
    FROM engine_samples
    WHERE observer <> 'engine'
    GROUP BY target
),

known AS (
    SELECT
        coalesce(latest.replica, targets.target) AS replica,
        coalesce(latest.target, targets.target) AS target,
        coalesce(latest.engine, targets.engine) AS engine,
        CASE WHEN latest.replica IS NOT NULL THEN 'engine' ELSE observer END AS observer,
        -- What a process held and queued says nothing once it does not answer or is gone.
        newest >= max(newest) OVER () - INTERVAL 10 MINUTE AND (
            coalesce(up, true)
            OR NOT in_window(last_success, getvariable('since'), getvariable('until'))
        ) AS still_so,
        version, coalesce(model, '') AS model, coalesce(role, 'unified') AS role,
        up, last_success, error, missing_metrics, missing_advice, frozen, caching_enabled,
        prompt_tokens, cached_tokens, token_hit_ratio, computed_tokens_per_second,
        CASE WHEN still_so THEN kv_usage_ratio END AS kv_usage_ratio,
        CASE WHEN still_so THEN running_requests END AS running_requests,
        CASE WHEN still_so THEN waiting_requests END AS waiting_requests,
        coalesce(resets, 0) AS resets
    FROM latest
    LEFT JOIN work USING (replica)
    FULL JOIN targets ON latest.target = targets.target
    LEFT JOIN other_observers ON targets.target = other_observers.target
    -- A target without samples is of no known model or replica.
    WHERE
        latest.replica IS NOT NULL
        OR (
            coalesce(getvariable('model'), getvariable('replica')) IS NULL
            AND targets.target NOT IN (SELECT target FROM engine_own)
        )
),

-- Distances below these are noise: 2 points of hit ratio, 5 of KV use, a tenth of the rate.
distances AS (
    SELECT
        *,
        count(token_hit_ratio) OVER peers AS rated_peers,
        count(*) OVER peers AS all_peers,
        abs(token_hit_ratio - median(token_hit_ratio) OVER peers) AS hit_distance,
        abs(kv_usage_ratio - median(kv_usage_ratio) OVER peers) AS usage_distance,
        abs(computed_tokens_per_second - median(computed_tokens_per_second) OVER peers)
            AS rate_distance,
        median(computed_tokens_per_second) OVER peers AS median_rate
    FROM known
    WINDOW peers AS (PARTITION BY model, role)
),

scores AS (
    SELECT
        *,
        CASE WHEN all_peers >= 3 THEN greatest(
            CASE WHEN rated_peers >= 3
                THEN hit_distance / greatest(1.4826 * median(hit_distance) OVER peers, 0.02) END,
            usage_distance / greatest(1.4826 * median(usage_distance) OVER peers, 0.05),
            rate_distance
                / greatest(1.4826 * median(rate_distance) OVER peers, 0.1 * median_rate, 1)
        ) END AS outlier_score
    FROM distances
    WINDOW peers AS (PARTITION BY model, role)
)

SELECT
    replica, target, engine, observer, version, model, role, up, last_success, error, missing_metrics,
    missing_advice, frozen, caching_enabled, prompt_tokens, cached_tokens, token_hit_ratio,
    computed_tokens_per_second, kv_usage_ratio, running_requests, waiting_requests, resets,
    outlier_score
FROM scores
ORDER BY
    up NULLS LAST, frozen DESC NULLS LAST, observer <> 'engine' NULLS FIRST,
    outlier_score DESC NULLS LAST, replica;
