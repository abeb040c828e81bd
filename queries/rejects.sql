/*
name: rejects
question: What could not be read, why, and what did it look like?
grain: one row per source and reason, with the latest reject as example; most rejects first
params:
  since: {type: TIMESTAMP, default: null, meaning: "Start of the window of arrival, inclusive; all time if not set."}
filters: [until]
columns:
  source: {type: VARCHAR, unit: name, meaning: "Configured stream name."}
  reason: {type: VARCHAR, unit: name, meaning: "Why the rows were set aside."}
  rejects: {type: BIGINT, unit: count, meaning: "Rows set aside and still kept."}
  first_arrived: {type: TIMESTAMP, unit: time, meaning: "First of them."}
  last_arrived: {type: TIMESTAMP, unit: time, meaning: "Latest of them."}
  position: {type: BIGINT, unit: position, meaning: "Where the example stands in its file or batch."}
  detail: {type: VARCHAR, unit: text, meaning: "What exactly was wrong with the example."}
  excerpt: {type: VARCHAR, unit: text, meaning: "Start of the example, redacted."}
*/
WITH grouped AS (
    SELECT
        source, reason,
        count(*) AS rejects,
        min(arrived) AS first_arrived,
        max(arrived) AS last_arrived,
        arg_max(
            {'position': position, 'detail': detail, 'excerpt': excerpt}, (arrived, position)
        ) AS example
    FROM rejects
    WHERE in_window(arrived, getvariable('since'), getvariable('until'))
    GROUP BY ALL
)

SELECT
    source, reason, rejects, first_arrived, last_arrived,
    example.position AS position, example.detail AS detail, example.excerpt AS excerpt
FROM grouped
ORDER BY rejects DESC, source, reason;
