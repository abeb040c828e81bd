-- What the questions about usage reports share: what a reporter said by bucket, and our own rows
-- summed so that the two can be laid side by side. They are never added.

-- The name two accounts of a model have in common: in small letters, without a provider in front,
-- with - for a dot, without -latest or a snapshot's date (-2024-08-06, -20240806, @20240806,
-- -0613).
CREATE OR REPLACE MACRO model_key(name) AS regexp_replace(
    replace(lower(regexp_extract(name, '[^/]*$')), '.', '-'),
    '([-@](\d{4}-\d\d-\d\d|\d{8}|\d{4})|-latest)$', ''
);
CREATE OR REPLACE MACRO provider_key(name) AS
    CASE WHEN lower(name) = 'text-completion-openai' THEN 'openai' ELSE lower(name) END;

-- Reports go on counting for a while: a bucket is settled once the report was made an hour after
-- its end.
CREATE OR REPLACE VIEW reported_usage AS
SELECT
    reporter, provider_key(provider) AS provider,
    coalesce(model_key(model), '') AS model, coalesce(model, '') AS reported_model,
    coalesce(tenant, '') AS tenant,
    day AS span_since, day + to_seconds(bucket_seconds) AS span_until,
    date_trunc('day', day)::TIMESTAMP AS utc_day,
    requests, prompt_tokens, cached_tokens, cache_write_tokens, output_tokens, read_at,
    read_at >= span_until + INTERVAL 1 HOUR AS settled
FROM provider_usage;

-- Our rows of [since, until) summed by 'hour' or 'minute' (`unit`; by hour where only roll-ups are
-- left), provider and model, with those apart that a provider may not have counted: `repeat_*`
-- attempts before a call's last one and rows of a call that a larger source has too, `failed_*`
-- errors, `stored_requests` answers of a response cache (they carry no tokens). `blank_requests`
-- have no prompt count. What OpenRouter served is on its account and left out. Roll-ups know
-- neither provider nor what was written nor which rows those are.
CREATE OR REPLACE MACRO own_usage(since_border, until_border, unit) AS TABLE
WITH ranked_sources AS (
    SELECT source, row_number() OVER (ORDER BY count(*) DESC, source) AS source_rank
    FROM requests WHERE in_window(ts, since_border, until_border) GROUP BY source
),

-- Read again where it is used: kept in memory, all rows would be.
rows AS NOT MATERIALIZED (
    SELECT
        ts, source, source_rank, request_id, attempt, provider, model, status, flags,
        ineligible_reason, prompt_tokens, cached_tokens,
        hash(coalesce(response_id, request_id), attempt) AS call_hash,
        coalesce(response_id, request_id) IS NOT NULL AS has_id,
        coalesce(cache_write_5m, 0) + coalesce(cache_write_1h, 0) + coalesce(cache_write_other, 0)
            AS split_tokens,
        CASE
            WHEN coalesce(cache_write_tokens, cache_write_5m, cache_write_1h, cache_write_other)
                IS NOT NULL
                THEN greatest(coalesce(cache_write_tokens, 0), split_tokens)
        END AS written_tokens
    FROM requests
    JOIN ranked_sources USING (source)
    WHERE
        in_window(ts, since_border, until_border)
        AND ts >= (SELECT hour FROM hot_from)
        AND replica_role IS DISTINCT FROM 'decode'
        AND source_format <> 'openrouter'
),

last_attempts AS (
    SELECT source, request_id, max(attempt) AS last_attempt
    FROM rows WHERE attempt > 1 AND request_id IS NOT NULL GROUP BY ALL
),

-- Within a source a call is known by its id already.
in_lesser_sources AS (
    SELECT call_hash, min(source_rank) AS source_rank
    FROM rows WHERE source_rank > 1 AND has_id GROUP BY ALL
),

first_sources AS (
    SELECT call_hash, min(source_rank) AS first_rank
    FROM (
        SELECT call_hash, source_rank FROM rows
        WHERE source_rank = 1 AND has_id
            AND call_hash IN (SELECT call_hash FROM in_lesser_sources)
        UNION ALL FROM in_lesser_sources
    )
    GROUP BY ALL
),

classed AS NOT MATERIALIZED (
    SELECT
        rows.*,
        CASE
            WHEN
                coalesce(attempt < last_attempt, false)
                OR coalesce(source_rank > first_rank AND has_id, false)
                OR coalesce(list_contains(flags, 'suspected_duplicate'), false)
                THEN 'repeat'
            WHEN ineligible_reason = 'response_cache' THEN 'stored'
            WHEN status = 'error' THEN 'failed'
            ELSE 'call'
        END AS kind
    FROM rows
    LEFT JOIN last_attempts USING (source, request_id)
    LEFT JOIN first_sources USING (call_hash)
)

SELECT
    provider_key(provider) AS provider, model_key(model) AS model, model AS own_model,
    date_trunc(bin_unit, ts)::TIMESTAMP AS bin_since,
    bin_since + CASE WHEN bin_unit = 'hour' THEN INTERVAL 1 HOUR ELSE INTERVAL 1 MINUTE END
        AS bin_until,
    'row' AS kept_as,
    count(*) AS requests,
    total(prompt_tokens) AS prompt_tokens,
    known_total(cached_tokens) AS cached_tokens,
    known_total(written_tokens) AS written_tokens,
    total(CASE WHEN kind = 'repeat' THEN prompt_tokens END) AS repeat_prompt,
    total(CASE WHEN kind = 'repeat' THEN cached_tokens END) AS repeat_cached,
    total(CASE WHEN kind = 'repeat' THEN written_tokens END) AS repeat_written,
    count(*) FILTER (kind = 'repeat') AS repeat_requests,
    total(CASE WHEN kind = 'failed' THEN prompt_tokens END) AS failed_prompt,
    total(CASE WHEN kind = 'failed' THEN cached_tokens END) AS failed_cached,
    total(CASE WHEN kind = 'failed' THEN written_tokens END) AS failed_written,
    count(*) FILTER (kind = 'failed') AS failed_requests,
    count(*) FILTER (kind = 'stored') AS stored_requests,
    count(*) FILTER (kind = 'call' AND prompt_tokens IS NULL) AS blank_requests,
    total(CASE WHEN kind = 'call' AND cached_tokens IS NULL THEN prompt_tokens END)
        AS unreported_prompt,
    total(CASE WHEN kind = 'call' AND written_tokens IS NULL THEN prompt_tokens END)
        AS unwritten_prompt
FROM classed CROSS JOIN (SELECT unit AS bin_unit)
GROUP BY ALL
UNION ALL BY NAME
SELECT
    NULL AS provider, model_key(model) AS model, model AS own_model,
    hour AS bin_since, hour + INTERVAL 1 HOUR AS bin_until, 'hour' AS kept_as,
    total(requests) AS requests, total(prompt_tokens) AS prompt_tokens,
    known_total(cached_tokens) AS cached_tokens,
    greatest(
        total(prompt_tokens) - total(reported_prompt_tokens) - total(ineligible_prompt_tokens), 0
    ) AS unreported_prompt
FROM hour_rollup
WHERE hour < (SELECT hour FROM hot_from) AND in_window(hour, since_border, until_border)
GROUP BY ALL;

-- Rows and tokens of each minute (hour where only roll-ups are left), to see them pause.
CREATE OR REPLACE MACRO own_pace(since_border, until_border) AS TABLE
SELECT
    provider_key(provider) AS provider, model_key(model) AS model,
    date_trunc('minute', ts)::TIMESTAMP AS bin_since, bin_since + INTERVAL 1 MINUTE AS bin_until,
    count(*) AS requests, total(prompt_tokens) AS prompt_tokens
FROM requests
WHERE
    in_window(ts, since_border, until_border)
    AND ts >= (SELECT hour FROM hot_from)
    AND replica_role IS DISTINCT FROM 'decode'
    AND source_format <> 'openrouter'
GROUP BY ALL
UNION ALL BY NAME
SELECT
    NULL AS provider, model_key(model) AS model,
    hour AS bin_since, hour + INTERVAL 1 HOUR AS bin_until,
    total(requests) AS requests, total(prompt_tokens) AS prompt_tokens
FROM hour_rollup
WHERE hour < (SELECT hour FROM hot_from) AND in_window(hour, since_border, until_border)
GROUP BY ALL;

-- Whose rows without a provider are: theirs whose report has the model (the most of it).
CREATE OR REPLACE VIEW model_owners AS
SELECT model, arg_max(provider, prompt_tokens) AS owner
FROM (
    SELECT provider, model, sum(prompt_tokens) AS prompt_tokens
    FROM reported_usage WHERE model <> '' GROUP BY ALL
)
GROUP BY ALL;
