/*
name: ingest_health
question: Did every source arrive whole, on time and with cached counts?
grain: one row per source and format; most recent arrival first
params:
  since: {type: TIMESTAMP, default: null, meaning: "Start of the window of batches, inclusive; all time if not set."}
filters: [until]
columns:
  source: {type: VARCHAR, unit: name, meaning: "Configured stream name."}
  source_format: {type: VARCHAR, unit: name, meaning: "Format whose mapping read it."}
  accepted: {type: BIGINT, unit: count, meaning: "Rows taken in."}
  duplicate: {type: BIGINT, unit: count, meaning: "Rows already known."}
  corrected: {type: BIGINT, unit: count, meaning: "Rows that completed an earlier one."}
  conflicting: {type: BIGINT, unit: count, meaning: "Rows that contradict an earlier one; the first won."}
  rejected: {type: BIGINT, unit: count, meaning: "Rows that could not be read; see rejects."}
  late_requests: {type: BIGINT, unit: requests, meaning: "Rows too old for the live counters."}
  late_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens of those."}
  first_ts: {type: TIMESTAMP, unit: time, meaning: "Earliest event time."}
  last_ts: {type: TIMESTAMP, unit: time, meaning: "Latest event time."}
  last_arrived: {type: TIMESTAMP, unit: time, meaning: "Latest arrival."}
  flags: {type: "MAP(VARCHAR, BIGINT)", unit: count, meaning: "Rows by data-quality flag."}
  coverage_ratio: {type: DOUBLE, unit: ratio, meaning: "Reported / eligible prompt tokens of the rows still hot."}
  attempts: {type: BIGINT, unit: count, meaning: "Rows still hot, one per attempt."}
  requests: {type: BIGINT, unit: requests, meaning: "The same with the attempts of a request that was tried again counted once."}
*/
WITH batches AS (
    SELECT * FROM ingest_batches
    WHERE in_window(
        hour, date_trunc('hour', getvariable('since')::TIMESTAMP), getvariable('until')
    )
),

flagged AS (
    SELECT source, source_format, map_from_entries(list((flag, rows) ORDER BY flag)) AS flags
    FROM (
        SELECT source, source_format, entry.key AS flag, total(entry.value) AS rows
        FROM (SELECT source, source_format, unnest(map_entries(flags)) AS entry FROM batches)
        GROUP BY ALL
    )
    GROUP BY ALL
),

coverage AS (
    SELECT
        source,
        ratio(
            total(reported_prompt_tokens),
            total(prompt_tokens) - total(ineligible_prompt_tokens)
        ) AS coverage_ratio
    FROM traffic
    WHERE kept_as = 'row' AND in_window(ts, getvariable('since'), getvariable('until'))
    GROUP BY source
),

hot AS (
    SELECT * FROM requests
    WHERE
        ts >= (SELECT hour FROM hot_from)
        AND in_window(ts, getvariable('since'), getvariable('until'))
),

tried_again AS (
    SELECT source, source_format, count(*) - count(DISTINCT request_id) AS repeats
    FROM hot
    SEMI JOIN (
        SELECT source, source_format, request_id FROM hot WHERE attempt > 1
    ) USING (source, source_format, request_id)
    GROUP BY ALL
),

attempted AS (
    SELECT
        source, source_format,
        attempts, attempts - coalesce(repeats, 0) AS requests
    FROM (SELECT source, source_format, count(*) AS attempts FROM hot GROUP BY ALL)
    LEFT JOIN tried_again USING (source, source_format)
),

sums AS (
    SELECT
        source, source_format,
        total(accepted) AS accepted, total(duplicate) AS duplicate,
        total(corrected) AS corrected, total(conflicting) AS conflicting,
        total(rejected) AS rejected,
        total(late_requests) AS late_requests, total(late_tokens) AS late_tokens,
        min(first_ts) AS first_ts, max(last_ts) AS last_ts, max(last_arrived) AS last_arrived
    FROM batches
    GROUP BY ALL
)

SELECT
    sums.*,
    coalesce(flags, MAP {}::MAP(VARCHAR, BIGINT)) AS flags,
    coverage_ratio,
    coalesce(attempts, 0) AS attempts,
    coalesce(requests, 0) AS requests
FROM sums
LEFT JOIN flagged USING (source, source_format)
LEFT JOIN coverage USING (source)
LEFT JOIN attempted USING (source, source_format)
ORDER BY last_arrived DESC, source, source_format;
