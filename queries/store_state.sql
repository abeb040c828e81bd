/*
name: store_state
question: What does this store hold, and what can be said from it?
grain: one row
params: {}
columns:
  level: {type: INTEGER, unit: level, meaning: "NULL empty, 0 engine counters (or KV-cache events) only, 1 request rows, 2 with KV-cache events too, 3 with causes of missed tokens."}
  demo: {type: BOOLEAN, unit: flag, meaning: "True if the data is the labelled synthetic demo."}
  requests: {type: BIGINT, unit: requests, meaning: "Request rows, rolled up ones included."}
  first_ts: {type: TIMESTAMP, unit: time, meaning: "Earliest request; its hour where rolled up."}
  last_ts: {type: TIMESTAMP, unit: time, meaning: "Latest request."}
  engine_first_ts: {type: TIMESTAMP, unit: time, meaning: "Earliest engine sample."}
  engine_last_ts: {type: TIMESTAMP, unit: time, meaning: "Latest engine sample."}
  events_last_ts: {type: TIMESTAMP, unit: time, meaning: "Latest KV-cache event; NULL if none came."}
  replicas: {type: BIGINT, unit: count, meaning: "Replicas engine samples know; else those request rows name."}
  hot_since: {type: TIMESTAMP, unit: time, meaning: "Request rows are kept from here on; NULL if nothing was removed."}
  hit_threshold_ratio: {type: DOUBLE, unit: ratio, meaning: "Cached share from which an outcome is a hit."}
  zone: {type: VARCHAR, unit: name, meaning: "Time zone of the settings (drops.zone), whose hours of the week are compared."}
*/
WITH logged AS (
    SELECT total(requests) AS requests, min(ts) AS first_ts, max(ts) AS last_ts
    FROM traffic
    WHERE answers(kept_as, NULL, NULL)
),

named AS (
    SELECT count(DISTINCT nullif(replica, '')) AS replicas FROM traffic WHERE kept_as = 'row'
),

sampled AS (
    SELECT
        count(DISTINCT replica) AS replicas,
        min(ts) AS engine_first_ts,
        max(ts) AS engine_last_ts
    FROM engine_own
),

told AS (
    SELECT max(heard) AS events_last_ts FROM block_minutes
),

kept AS (
    SELECT
        coalesce(max(value) FILTER (key = 'demo'), 'false')::BOOLEAN AS demo,
        coalesce(max(value) FILTER (key = 'hit_threshold_ratio'), '0.8')::DOUBLE
            AS hit_threshold_ratio,
        coalesce(max(value) FILTER (key = 'zone'), 'UTC') AS zone
    FROM meta
)

SELECT
    CASE
        WHEN requests > 0 THEN CASE
            WHEN EXISTS (SELECT 1 FROM cause_hours WHERE requests > 0) THEN 3
            WHEN events_last_ts IS NOT NULL THEN 2
            ELSE 1
        END
        WHEN coalesce(engine_last_ts, events_last_ts) IS NOT NULL THEN 0
    END AS level,
    demo, requests, first_ts, last_ts, engine_first_ts, engine_last_ts, events_last_ts,
    CASE WHEN sampled.replicas > 0 THEN sampled.replicas ELSE named.replicas END AS replicas,
    (SELECT max(hour) FROM hot_since) AS hot_since,
    hit_threshold_ratio, zone
FROM logged, named, sampled, told, kept;
