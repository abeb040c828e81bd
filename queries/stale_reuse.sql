/*
name: stale_reuse
question: Was KV reused that had been written under another model, adapter or engine start?
grain: one row per evidence, reason, model, replica, tier and pair of what it was written and read under; worst first
filters: [since, until, model, replica]
columns:
  severity: {type: VARCHAR, unit: name, meaning: "critical = KV of other weights or of another adapter was served; warning = likely; info = a persistent tier at work, as meant; unknown = cannot be told."}
  reason: {type: VARCHAR, unit: name, meaning: "model_fingerprint, adapter, model_name, engine_version, engine_start (same weights, before a restart), unaccounted (nobody wrote it since the weights changed) or before_log (written before the rows begin)."}
  evidence: {type: VARCHAR, unit: name, meaning: "requests (chains of hot rows) or counters (pages of engines)."}
  model: {type: VARCHAR, unit: name, meaning: "Model that reused it, '' if not given."}
  replica: {type: VARCHAR, unit: name, meaning: "Replica that reused it, '' if not given."}
  tier: {type: VARCHAR, unit: name, meaning: "Deepest tier it came from; unknown where rows do not say."}
  written_under: {type: VARCHAR, unit: text, meaning: "What it was written under: fingerprint, else model, and adapter; of counters model and version. NULL where that is not known."}
  read_under: {type: VARCHAR, unit: text, meaning: "What it was reused under."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests that reused it; NULL for counters."}
  tokens: {type: BIGINT, unit: tokens, meaning: "Cached tokens of these requests, or tokens loaded."}
  first_ts: {type: TIMESTAMP, unit: time, meaning: "First such reuse, UTC."}
  last_ts: {type: TIMESTAMP, unit: time, meaning: "Last such reuse, UTC."}
  sentence: {type: VARCHAR, unit: text, meaning: "The finding in words."}
*/
WITH found AS (
    SELECT
        'requests' AS evidence, reason, model, replica, tier, written_under, read_under,
        false AS shared, count(*) AS requests, sum(tokens) AS tokens,
        min(ts) AS first_ts, max(ts) AS last_ts
    FROM stale_reads(
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('replica')
    )
    GROUP BY ALL
    UNION ALL
    SELECT
        'counters', reason, model, replica, tier, written_under, read_under,
        shared, NULL, sum(tokens), min(ts), max(ts)
    FROM stale_loads(
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('replica')
    )
    GROUP BY ALL
),

judged AS (
    SELECT
        *,
        CASE
            WHEN shared OR reason = 'before_log' THEN 'unknown'
            WHEN reason = 'engine_start' THEN 'info'
            WHEN reason IN ('model_fingerprint', 'adapter') THEN 'critical'
            WHEN reason = 'model_name' AND evidence = 'counters' THEN 'critical'
            ELSE 'warning'
        END AS severity
    FROM found
)

SELECT
    severity, reason, evidence, model, replica, tier, written_under, read_under,
    requests, tokens::BIGINT AS tokens, first_ts, last_ts,
    said_count(tokens) || ' tokens ' || CASE reason
        WHEN 'model_fingerprint' THEN 'written under other weights were reused: the change did not'
            || ' clear or partition the cache'
        WHEN 'adapter' THEN 'written under another adapter were reused: the cache does not part'
            || ' adapters'
        WHEN 'model_name' THEN 'written under another model name were reused: other weights,'
            || ' unless both names mean the same'
        WHEN 'engine_version' THEN 'written by another engine version were reused: check that its'
            || ' KV layout is the same'
        WHEN 'engine_start' THEN 'written before a restart were reused: a persistent tier at work'
        WHEN 'unaccounted' THEN 'were reused that no logged request wrote since the weights changed'
        ELSE 'were written before the rows begin: under what cannot be told'
    END || CASE
        WHEN shared THEN ', or by another replica that reaches the same tier'
        ELSE ''
    END || '.' AS sentence
FROM judged
ORDER BY
    list_position(['critical', 'warning', 'info', 'unknown'], severity), tokens DESC,
    evidence, reason, model, replica, tier, written_under, read_under;
