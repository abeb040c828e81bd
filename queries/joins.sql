/*
name: joins
question: Of the rows that gateways and engines wrote about the same calls, how many found their other half?
grain: one row per source and side that is to be joined; most rows first
filters: [since, until]
columns:
  source: {type: VARCHAR, unit: name, meaning: "Configured stream name."}
  side: {type: VARCHAR, unit: name, meaning: "Where its rows are written: gateway or engine."}
  rows: {type: BIGINT, unit: count, meaning: "Rows of hot requests it wrote, decode replicas left out."}
  joined: {type: BIGINT, unit: count, meaning: "Of these, rows joined with one of the other side."}
  unmatched: {type: BIGINT, unit: count, meaning: "Of these, rows that stand alone."}
  unmatched_ratio: {type: DOUBLE, unit: ratio, meaning: "unmatched ÷ rows."}
*/
WITH sided AS (
    SELECT source, side, ts, replica_role, true AS is_joined FROM request_parts
    UNION ALL
    SELECT source, side, ts, replica_role, false FROM requests WHERE side IS NOT NULL
)

SELECT
    source, side,
    count(*) AS rows,
    count(*) FILTER (is_joined) AS joined,
    count(*) FILTER (NOT is_joined) AS unmatched,
    ratio(count(*) FILTER (NOT is_joined), count(*)) AS unmatched_ratio
FROM sided
WHERE in_window(ts, getvariable('since'), getvariable('until'))
    AND replica_role IS DISTINCT FROM 'decode'
GROUP BY ALL
ORDER BY rows DESC, source, side;
