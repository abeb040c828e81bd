/*
name: figure_sources
question: Where do these figures come from?
grain: one row per request log and format, per way engine counters came, and per stream of KV-cache events
params:
  route: {type: VARCHAR, default: null, meaning: "Only this route, of logs."}
  template: {type: VARCHAR, default: null, meaning: "Only this template, of logs."}
  tenant: {type: VARCHAR, default: null, meaning: "Only this tenant, of logs."}
filters: [since, until, model, replica]
columns:
  kind: {type: VARCHAR, unit: name, meaning: "log (request rows), engine (counters of metric pages) or events (KV-cache events)."}
  source: {type: VARCHAR, unit: name, meaning: "Configured stream name of a log or of events; of engine counters the address of the Prometheus they were read from, '' if our own scraper or recorded pages brought them. '' of a log: roll-ups, which keep no source."}
  basis: {type: VARCHAR, unit: name, meaning: "Of a log its format, or roll-up; of engine counters scrape (polled by us), prometheus (read as it goes), backfill (read as history) or file (recorded pages); of events zmq."}
  observer: {type: VARCHAR, unit: name, meaning: "Who counted: engine, or a kv_store, router or gateway, whose counters enter no engine figure; NULL of logs and events."}
  rows: {type: BIGINT, unit: count, meaning: "Rows of a log, halves of joined calls included; samples of counters; batches of events."}
  joined_rows: {type: BIGINT, unit: count, meaning: "Of the rows of a log, halves of calls that were joined with another log's: such a call counts once."}
  targets: {type: BIGINT, unit: count, meaning: "Metric pages; NULL of logs."}
  replicas: {type: BIGINT, unit: count, meaning: "Replicas it names."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "What it says by itself. Sources of the same calls say it each: never the sum of this column."}
  reported_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Of these, those whose cached count is known."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "What it says by itself."}
  reported_ratio: {type: DOUBLE, unit: ratio, meaning: "Of a log, reported / eligible prompt tokens (its coverage); NULL of others."}
  first_ts: {type: TIMESTAMP, unit: time, meaning: "Earliest in the window."}
  last_ts: {type: TIMESTAMP, unit: time, meaning: "Latest in the window."}
*/
WITH log_rows AS (
    SELECT *, false AS is_part FROM requests
    WHERE NOT coalesce(list_contains(flags, 'joined'), false)
    UNION ALL
    SELECT *, true FROM request_parts
),

logs AS (
    SELECT
        'log' AS kind, source, source_format AS basis, NULL AS observer,
        count(*) AS rows, count(*) FILTER (is_part) AS joined_rows, NULL::BIGINT AS targets,
        count(DISTINCT replica) AS replicas,
        sum(prompt_tokens)::BIGINT AS prompt_tokens,
        total(CASE WHEN is_reported(prompt_tokens, cached_tokens, ineligible_reason)
            THEN prompt_tokens END) AS reported_prompt_tokens,
        (sum(cached_tokens) FILTER (
            is_reported(prompt_tokens, cached_tokens, ineligible_reason)
        ))::BIGINT AS cached_tokens,
        total(CASE WHEN ineligible_reason IS NULL THEN prompt_tokens END) AS eligible_tokens,
        min(ts) AS first_ts, max(ts) AS last_ts
    FROM log_rows
    WHERE
        ts >= (SELECT hour FROM hot_from)
        AND replica_role IS DISTINCT FROM 'decode'
        AND in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(coalesce(replica, ''), getvariable('replica'))
        AND matches(coalesce(route, ''), getvariable('route'))
        AND matches(coalesce(template, ''), getvariable('template'))
        AND matches(coalesce(tenant, ''), getvariable('tenant'))
    GROUP BY source, source_format
),

-- Before the hot rows only sums are kept, of all logs together.
rolled_up AS (
    SELECT
        'log' AS kind, '' AS source, 'roll-up' AS basis, NULL AS observer,
        total(requests) AS rows, NULL::BIGINT AS joined_rows, NULL::BIGINT AS targets,
        NULL::BIGINT AS replicas,
        sum(prompt_tokens)::BIGINT AS prompt_tokens,
        total(reported_prompt_tokens) AS reported_prompt_tokens,
        sum(cached_tokens)::BIGINT AS cached_tokens,
        total(prompt_tokens) - total(ineligible_prompt_tokens) AS eligible_tokens,
        min(ts) AS first_ts, max(ts) AS last_ts
    FROM traffic
    WHERE
        kept_as <> 'row'
        AND answers(kept_as, NULL, getvariable('replica'))
        AND in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(model, getvariable('model'))
        AND matches(replica, getvariable('replica'))
        AND matches(route, getvariable('route'))
        AND matches(template, getvariable('template'))
        AND matches(tenant, getvariable('tenant'))
    HAVING count(*) > 0
),

sampled AS (
    SELECT
        *, overlap_share(since, ts, getvariable('since'), getvariable('until')) AS share
    FROM engine_samples
    WHERE
        role <> 'decode'
        AND reaches_into(since, ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
),

engines AS (
    SELECT
        'engine' AS kind, coalesce(origin_name, '') AS source, origin AS basis, observer,
        count(*) AS rows, NULL::BIGINT AS joined_rows,
        count(DISTINCT target) AS targets, count(DISTINCT replica) AS replicas,
        known_total(prompt_tokens * share) AS prompt_tokens,
        known_total(CASE WHEN cached_tokens IS NOT NULL THEN prompt_tokens * share END)
            AS reported_prompt_tokens,
        known_total(cached_tokens * share) AS cached_tokens,
        NULL::BIGINT AS eligible_tokens,
        min(coalesce(since, ts)) AS first_ts, max(ts) AS last_ts
    FROM sampled
    GROUP BY origin, origin_name, observer
),

-- Batches are counted since the stream began, not by window.
events AS (
    SELECT
        'events' AS kind, source, 'zmq' AS basis, NULL AS observer,
        total(batches) AS rows, NULL::BIGINT AS joined_rows, NULL::BIGINT AS targets,
        count(DISTINCT replica) AS replicas,
        NULL::BIGINT AS prompt_tokens, NULL::BIGINT AS reported_prompt_tokens,
        NULL::BIGINT AS cached_tokens, NULL::BIGINT AS eligible_tokens,
        min(first_heard) AS first_ts, max(last_heard) AS last_ts
    FROM block_streams
    WHERE
        (getvariable('since') IS NULL OR last_heard >= getvariable('since'))
        AND (getvariable('until') IS NULL OR first_heard < getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
    GROUP BY source
)

SELECT
    kind, source, basis, observer, rows, joined_rows, targets, replicas,
    prompt_tokens, reported_prompt_tokens, cached_tokens,
    CASE WHEN kind = 'log' THEN ratio(reported_prompt_tokens, eligible_tokens) END
        AS reported_ratio,
    first_ts, last_ts
FROM (
    FROM logs UNION ALL FROM rolled_up UNION ALL FROM engines UNION ALL FROM events
)
ORDER BY
    CASE kind WHEN 'log' THEN 1 WHEN 'engine' THEN 2 ELSE 3 END,
    observer = 'engine' DESC NULLS FIRST, rows DESC, source, basis;
