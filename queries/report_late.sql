/*
name: report_late
question: Which rows of a window came so late that a report made after it lacked them, and what did they change?
grain: one row
params:
  until: {type: TIMESTAMP, default: null, meaning: "End of the window, exclusive; open if not set, and then nothing is late."}
  grace_hours: {type: BIGINT, default: 24, minimum: 0, meaning: "A row is late if it arrived so many hours or more after the end of the window."}
filters: [since, model]
columns:
  requests: {type: BIGINT, unit: requests, meaning: "Rows of the window still hot, one per attempt; decode replicas left out. What is kept in roll-ups only does not say when it arrived."}
  late_requests: {type: BIGINT, unit: requests, meaning: "Of these, late ones."}
  late_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Their prompt tokens."}
  last_arrived: {type: TIMESTAMP, unit: time, meaning: "When the last of the late ones arrived; NULL if none is late."}
  token_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "Cached / reported prompt tokens of all rows counted here."}
  token_hit_ratio_without_late: {type: DOUBLE, unit: ratio, meaning: "The same without the late ones: what a report made at the end of the grace said; NULL if all are late."}
*/
WITH counted AS (
    SELECT
        prompt_tokens, cached_tokens, arrived,
        is_reported(prompt_tokens, cached_tokens, ineligible_reason) AS reported,
        coalesce(
            arrived >= getvariable('until')::TIMESTAMP
                + to_hours(coalesce(getvariable('grace_hours'), 24)::INTEGER),
            false
        ) AS late
    FROM requests
    WHERE
        ts >= (SELECT hour FROM hot_from)
        AND replica_role IS DISTINCT FROM 'decode'
        AND in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
)

SELECT
    count(*) AS requests,
    count_if(late)::BIGINT AS late_requests,
    total(CASE WHEN late THEN prompt_tokens END) AS late_prompt_tokens,
    max(arrived) FILTER (late) AS last_arrived,
    ratio(sum(cached_tokens) FILTER (reported), sum(prompt_tokens) FILTER (reported))
        AS token_hit_ratio,
    ratio(
        sum(cached_tokens) FILTER (reported AND NOT late),
        sum(prompt_tokens) FILTER (reported AND NOT late)
    ) AS token_hit_ratio_without_late
FROM counted;
