/*
name: source_pairs
question: Where two sources tell of the same thing, do they agree, and is it counted once?
grain: one row per pair of sources, model and replica; what is counted twice first
filters: [since, until, model, replica]
columns:
  kind: {type: VARCHAR, unit: name, meaning: "log_and_engine: rows and counters of a model over the time both tell of, at least 5 minutes. joined_logs: calls that two logs wrote and that were joined. same_calls: calls of one id in two logs that were not joined. two_readings: intervals of a replica's counters that came in two ways. one_process: two replicas whose pages name the same program and process start and whose counters rose alike, within 1 %."}
  first_source: {type: VARCHAR, unit: name, meaning: "Log, way the counters came (see figure_sources), or replica; several in order."}
  second_source: {type: VARCHAR, unit: name, meaning: "The other."}
  model: {type: VARCHAR, unit: name, meaning: "Model compared; NULL where all together are."}
  replica: {type: VARCHAR, unit: name, meaning: "Replica compared; NULL where all together are."}
  shared: {type: BIGINT, unit: count, meaning: "Calls both wrote, or intervals both told; NULL where only sums are compared."}
  first_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "By the first."}
  second_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "By the second, of the same calls or time."}
  difference_tokens: {type: BIGINT, unit: tokens, meaning: "Second less first."}
  difference_ratio: {type: DOUBLE, unit: ratio, meaning: "difference_tokens / first_prompt_tokens."}
  first_cached_tokens: {type: BIGINT, unit: tokens, meaning: "By the first; NULL if it does not say."}
  second_cached_tokens: {type: BIGINT, unit: tokens, meaning: "By the second."}
  cached_difference_tokens: {type: BIGINT, unit: tokens, meaning: "Second less first."}
  added: {type: BOOLEAN, unit: flag, meaning: "True: both are in the same sums, so that these count twice. False: compared only."}
  since: {type: TIMESTAMP, unit: time, meaning: "Start of the time compared."}
  until: {type: TIMESTAMP, unit: time, meaning: "Its end."}
*/
WITH hot AS (
    SELECT rowid AS row, *
    FROM requests
    WHERE
        ts >= (SELECT hour FROM hot_from)
        AND replica_role IS DISTINCT FROM 'decode'
        AND in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(coalesce(replica, ''), getvariable('replica'))
),

counted AS (
    SELECT * FROM engine_traffic
    WHERE
        reaches_into(since, ts, getvariable('since'), getvariable('until'))
        AND matches(model, getvariable('model'))
        AND matches(replica, getvariable('replica'))
),

-- Counters of a time before the first row, or after the last, say nothing about the log.
both_watched AS (
    SELECT
        l.model,
        greatest(l.first_ts, e.first_ts, coalesce(getvariable('since'), l.first_ts)) AS since,
        least(l.last_ts, e.last_ts, coalesce(getvariable('until'), l.last_ts)) AS until,
        l.sources
    FROM (
        SELECT
            model, min(ts) AS first_ts, max(ts) AS last_ts,
            string_agg(DISTINCT source, ', ' ORDER BY source) AS sources
        FROM hot WHERE model <> '' GROUP BY model
    ) AS l
    JOIN (
        SELECT model, min(coalesce(since, ts)) AS first_ts, max(ts) AS last_ts
        FROM counted GROUP BY model
    ) AS e USING (model)
    WHERE epoch(until - since) >= 300
),

log_and_engine AS (
    SELECT
        'log_and_engine' AS kind, b.sources AS first_source, e.origins AS second_source,
        b.model, NULL AS replica, NULL::BIGINT AS shared,
        l.prompt_tokens AS first_prompt_tokens, e.prompt_tokens AS second_prompt_tokens,
        l.cached_tokens AS first_cached_tokens, e.cached_tokens AS second_cached_tokens,
        false AS added, b.since, b.until
    FROM both_watched AS b
    JOIN (
        SELECT
            b.model, sum(prompt_tokens)::BIGINT AS prompt_tokens,
            sum(cached_tokens)::BIGINT AS cached_tokens
        FROM hot JOIN both_watched AS b ON hot.model = b.model AND ts >= b.since AND ts < b.until
        GROUP BY b.model
    ) AS l USING (model)
    JOIN (
        SELECT
            b.model,
            string_agg(DISTINCT origin, ', ' ORDER BY origin) AS origins,
            known_total(prompt_tokens * overlap_share(c.since, ts, b.since, b.until))
                AS prompt_tokens,
            known_total(cached_tokens * overlap_share(c.since, ts, b.since, b.until))
                AS cached_tokens
        FROM counted AS c
        JOIN both_watched AS b
            ON c.model = b.model AND reaches_into(c.since, c.ts, b.since, b.until)
        GROUP BY b.model
    ) AS e USING (model)
),

parts AS (
    SELECT * FROM request_parts
    WHERE
        ts >= (SELECT hour FROM hot_from)
        AND in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND getvariable('replica') IS NULL  -- a gateway's half seldom names one
),

joined_logs AS (
    SELECT
        'joined_logs' AS kind,
        string_agg(DISTINCT source, ', ' ORDER BY source) FILTER (side = 'gateway')
            AS first_source,
        string_agg(DISTINCT source, ', ' ORDER BY source) FILTER (side = 'engine')
            AS second_source,
        NULL AS model, NULL AS replica,
        count(*) FILTER (side = 'gateway') AS shared,
        (sum(prompt_tokens) FILTER (side = 'gateway'))::BIGINT AS first_prompt_tokens,
        (sum(prompt_tokens) FILTER (side = 'engine'))::BIGINT AS second_prompt_tokens,
        (sum(cached_tokens) FILTER (side = 'gateway'))::BIGINT AS first_cached_tokens,
        (sum(cached_tokens) FILTER (side = 'engine'))::BIGINT AS second_cached_tokens,
        false AS added, min(ts) AS since, max(ts) AS until
    FROM parts
    HAVING count(*) > 0
),

-- One call has one id, in the answer too; an engine writes its API's prefix before it.
identified AS (
    SELECT row, source, ts, attempt, unnest(list_distinct(list_filter(
        [
            regexp_replace(request_id, '^(chatcmpl|cmpl)-', ''),
            regexp_replace(response_id, '^(chatcmpl|cmpl)-', '')
        ],
        lambda id: id IS NOT NULL
    ))) AS id
    FROM hot
    WHERE (SELECT count(DISTINCT source) FROM hot) > 1
),

matched AS (
    SELECT DISTINCT a.source AS first_source, b.source AS second_source, a.row AS a, b.row AS b
    FROM identified AS a
    JOIN identified AS b
        ON a.id = b.id AND a.attempt = b.attempt AND a.source < b.source
        AND abs(epoch(a.ts) - epoch(b.ts)) <= 300
),

same_calls AS (
    SELECT
        'same_calls' AS kind, m.first_source, m.second_source, NULL AS model, NULL AS replica,
        count(DISTINCT m.a) AS shared,
        (sum(f.prompt_tokens) FILTER (first_of_a))::BIGINT AS first_prompt_tokens,
        (sum(s.prompt_tokens) FILTER (first_of_b))::BIGINT AS second_prompt_tokens,
        (sum(f.cached_tokens) FILTER (first_of_a))::BIGINT AS first_cached_tokens,
        (sum(s.cached_tokens) FILTER (first_of_b))::BIGINT AS second_cached_tokens,
        true AS added, min(f.ts) AS since, max(f.ts) AS until
    FROM (
        SELECT
            *,
            row_number() OVER (PARTITION BY a, second_source ORDER BY b) = 1 AS first_of_a,
            row_number() OVER (PARTITION BY b, first_source ORDER BY a) = 1 AS first_of_b
        FROM matched
    ) AS m
    JOIN hot AS f ON f.row = m.a
    JOIN hot AS s ON s.row = m.b
    GROUP BY m.first_source, m.second_source
),

beside AS (
    SELECT
        replica, engine, origin, origin_name,
        count(*) AS shared, any_value(model) AS model,
        min(coalesce(since, ts)) AS since, max(ts) AS until,
        sum(prompt_tokens)::BIGINT AS prompt_tokens, sum(cached_tokens)::BIGINT AS cached_tokens
    FROM samples_beside
    WHERE
        in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
    GROUP BY replica, engine, origin, origin_name
),

two_readings AS (
    SELECT
        'two_readings' AS kind,
        string_agg(DISTINCT concat_ws(' ', e.origin, e.origin_name), ', ') AS first_source,
        concat_ws(' ', b.origin, b.origin_name) AS second_source,
        b.model, b.replica, b.shared,
        known_total(e.prompt_tokens * overlap_share(e.since, e.ts, b.since, b.until))
            AS first_prompt_tokens,
        b.prompt_tokens AS second_prompt_tokens,
        known_total(e.cached_tokens * overlap_share(e.since, e.ts, b.since, b.until))
            AS first_cached_tokens,
        b.cached_tokens AS second_cached_tokens,
        false AS added, b.since, b.until
    FROM beside AS b
    JOIN engine_samples AS e
        ON e.replica = b.replica AND e.engine = b.engine
        AND (e.origin, e.origin_name) IS DISTINCT FROM (b.origin, b.origin_name)
        AND reaches_into(e.since, e.ts, b.since, b.until)
    GROUP BY ALL
),

-- Two replicas with the very same start that counted the same are one process under two names:
-- equal but for what was counted at the edges, over the time both tell of.
processes AS (
    SELECT
        t.target, t.engine, (t.series ->> '$.process_start')::DOUBLE AS started, c.replica,
        greatest(min(coalesce(c.since, c.ts)), getvariable('since')::TIMESTAMP) AS first_ts,
        least(max(c.ts), getvariable('until')::TIMESTAMP) AS last_ts
    FROM targets AS t
    JOIN counted AS c ON c.target = t.target AND c.engine = t.engine
    WHERE t.series IS NOT NULL
    GROUP BY ALL
),

twins AS (
    SELECT
        row_number() OVER () AS pair, a.target AS target_a, b.target AS target_b,
        a.replica AS replica_a, b.replica AS replica_b,
        greatest(a.first_ts, b.first_ts) AS since, least(a.last_ts, b.last_ts) AS until
    FROM processes AS a
    JOIN processes AS b
        ON a.engine = b.engine AND a.started = b.started AND a.target < b.target
    WHERE a.first_ts < b.last_ts AND b.first_ts < a.last_ts
),

twin_sums AS (
    SELECT
        t.pair, c.target = t.target_a AS is_first, any_value(c.model) AS model,
        known_total(c.prompt_tokens * overlap_share(c.since, c.ts, t.since, t.until))
            AS prompt_tokens,
        known_total(c.cached_tokens * overlap_share(c.since, c.ts, t.since, t.until))
            AS cached_tokens
    FROM twins AS t
    JOIN counted AS c
        ON (c.target, c.replica) IN ((t.target_a, t.replica_a), (t.target_b, t.replica_b))
        AND reaches_into(c.since, c.ts, t.since, t.until)
    GROUP BY ALL
),

one_process AS (
    SELECT
        'one_process' AS kind, t.replica_a AS first_source, t.replica_b AS second_source,
        a.model, NULL AS replica, NULL::BIGINT AS shared,
        a.prompt_tokens AS first_prompt_tokens, b.prompt_tokens AS second_prompt_tokens,
        a.cached_tokens AS first_cached_tokens, b.cached_tokens AS second_cached_tokens,
        true AS added, t.since, t.until
    FROM twins AS t
    JOIN twin_sums AS a ON a.pair = t.pair AND a.is_first
    JOIN twin_sums AS b ON b.pair = t.pair AND NOT b.is_first AND b.model = a.model
    WHERE
        abs(a.prompt_tokens - b.prompt_tokens) <= 0.01 * a.prompt_tokens
        AND abs(a.cached_tokens - b.cached_tokens) <= 0.01 * a.prompt_tokens
        AND a.prompt_tokens > 0
)

SELECT
    kind, first_source, second_source, model, replica, shared,
    first_prompt_tokens, second_prompt_tokens,
    second_prompt_tokens - first_prompt_tokens AS difference_tokens,
    ratio(second_prompt_tokens - first_prompt_tokens, first_prompt_tokens) AS difference_ratio,
    first_cached_tokens, second_cached_tokens,
    second_cached_tokens - first_cached_tokens AS cached_difference_tokens,
    added, since, until
FROM (
    FROM log_and_engine UNION ALL FROM joined_logs UNION ALL FROM same_calls
    UNION ALL FROM two_readings UNION ALL FROM one_process
)
ORDER BY added DESC, kind, first_source, second_source, model, replica;
