/*
name: row_evidence
question: What do the newest rows of every log prove about its cached counts, its units and its clock?
grain: one row per source, format and model; most rows first
params:
  newest: {type: BIGINT, default: 200, minimum: 1, meaning: "Rows looked at, of each source, format and model: those of the latest times."}
columns:
  source: {type: VARCHAR, unit: name, meaning: "Configured stream name."}
  source_format: {type: VARCHAR, unit: name, meaning: "Format whose mapping read it."}
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  rows: {type: BIGINT, unit: count, meaning: "Hot rows looked at, decode replicas left out."}
  first_ts: {type: TIMESTAMP, unit: time, meaning: "Earliest of them."}
  last_ts: {type: TIMESTAMP, unit: time, meaning: "Latest of them."}
  eligible_rows: {type: BIGINT, unit: count, meaning: "Of these, rows of answered requests whose prompt count is known and which the cache could serve."}
  reported_rows: {type: BIGINT, unit: count, meaning: "Of the eligible, rows whose cached count is known."}
  cached_rows: {type: BIGINT, unit: count, meaning: "Of the reported, rows with any cached token."}
  without_usage_rows: {type: BIGINT, unit: count, meaning: "Rows of answered requests that the cache could serve, without a prompt count."}
  inclusive_rows: {type: BIGINT, unit: count, meaning: "Rows whose prompt count is known to include cached tokens."}
  exclusive_rows: {type: BIGINT, unit: count, meaning: "Rows whose prompt count was proven to leave cached tokens out, and was made inclusive."}
  assumed_rows: {type: BIGINT, unit: count, meaning: "Rows that usually include cached tokens; nothing in them proves it."}
  unknown_basis_rows: {type: BIGINT, unit: count, meaning: "Rows of which it cannot be told; they count as unreported."}
  median_prompt_tokens: {type: DOUBLE, unit: tokens, meaning: "Median prompt; NULL where none is known."}
  median_ttft_seconds: {type: DOUBLE, unit: seconds, meaning: "Median time to first token, whatever its point; NULL where none is known."}
  ahead_rows: {type: BIGINT, unit: count, meaning: "Rows that claim to have begun more than a minute after they arrived."}
  max_ahead_seconds: {type: DOUBLE, unit: seconds, meaning: "The largest such distance; NULL for none."}
  chained_rows: {type: BIGINT, unit: count, meaning: "Rows with a chain of block hashes."}
  replicas: {type: "VARCHAR[]", unit: name, meaning: "Replicas the rows name, in order of name, at most 100."}
*/
-- Twice a plain scan is cheaper than once a copy of every row.
WITH hot AS NOT MATERIALIZED (
    SELECT * REPLACE (coalesce(model, '') AS model)
    FROM requests
    WHERE ts >= (SELECT hour FROM hot_from) AND replica_role IS DISTINCT FROM 'decode'
),

-- The time of the last row that is looked at; rows of that very time may be more than wanted.
borders AS (
    SELECT
        source, source_format, model,
        list_min(max(ts, coalesce(getvariable('newest'), 200))) AS border
    FROM hot
    GROUP BY ALL
),

newest AS (
    SELECT hot.*
    FROM hot
    JOIN borders USING (source, source_format, model)
    -- The first condition is the second's least: it lets whole older row groups be skipped.
    WHERE hot.ts >= (SELECT min(border) FROM borders) AND hot.ts >= borders.border
    QUALIFY row_number() OVER (
        PARTITION BY source, source_format, model
        ORDER BY hot.ts DESC, hot.batch DESC, hot.position DESC
    ) <= coalesce(getvariable('newest'), 200)
),

judged AS (
    SELECT
        source, source_format, model, ts, prompt_tokens, cached_tokens, arrived, replica,
        prompt_basis AS basis, ttft_seconds AS ttft,
        status = 'ok' AND ineligible_reason IS NULL AS served,
        served AND prompt_tokens IS NOT NULL AS eligible,
        coalesce(len(block_hashes), 0) > 0 AS chained,
        ts > arrived + INTERVAL 1 MINUTE AS ahead
    FROM newest
)

SELECT
    source, source_format, model,
    count(*) AS rows,
    min(ts) AS first_ts, max(ts) AS last_ts,
    count(*) FILTER (eligible) AS eligible_rows,
    count(*) FILTER (eligible AND cached_tokens IS NOT NULL) AS reported_rows,
    count(*) FILTER (eligible AND cached_tokens > 0) AS cached_rows,
    count(*) FILTER (served AND prompt_tokens IS NULL) AS without_usage_rows,
    count(*) FILTER (basis = 'inclusive') AS inclusive_rows,
    count(*) FILTER (basis = 'exclusive') AS exclusive_rows,
    count(*) FILTER (basis = 'assumed') AS assumed_rows,
    count(*) FILTER (basis = 'unknown') AS unknown_basis_rows,
    median(prompt_tokens)::DOUBLE AS median_prompt_tokens,
    median(ttft) AS median_ttft_seconds,
    count(*) FILTER (ahead) AS ahead_rows,
    max(epoch_us(ts) - epoch_us(arrived)) FILTER (ahead) / 1e6 AS max_ahead_seconds,
    count(*) FILTER (chained) AS chained_rows,
    coalesce(list_sort(list(DISTINCT replica) FILTER (replica IS NOT NULL))[:100], [])
        AS replicas
FROM judged
GROUP BY ALL
ORDER BY rows DESC, source, source_format, model;
