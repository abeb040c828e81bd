/*
name: report_ineligible
question: Why could the prefix cache not serve what is left out of the hit ratio?
grain: one row per reason with requests; most prompt tokens first
filters: [since, until, model]
columns:
  reason: {type: VARCHAR, unit: name, meaning: "Why, like response_cache: a gateway answered from its own store of responses, which is no prefix cache. NULL where only roll-ups are left, which do not keep it."}
  requests: {type: BIGINT, unit: requests, meaning: "Rows, one per attempt; decode replicas left out."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Their prompt tokens, where rows have them; in no hit ratio and no coverage."}
*/
SELECT
    ineligible_reason AS reason,
    count(*) AS requests,
    total(prompt_tokens) AS prompt_tokens
FROM requests
WHERE
    ts >= (SELECT hour FROM hot_from)
    AND ineligible_reason IS NOT NULL
    AND replica_role IS DISTINCT FROM 'decode'
    AND in_window(ts, getvariable('since'), getvariable('until'))
    AND matches(coalesce(model, ''), getvariable('model'))
GROUP BY ALL
UNION ALL BY NAME
SELECT
    NULL AS reason,
    total(ineligible_requests) AS requests,
    total(ineligible_prompt_tokens) AS prompt_tokens
FROM traffic
WHERE
    kept_as = 'hour'
    AND in_window(ts, getvariable('since'), getvariable('until'))
    AND matches(model, getvariable('model'))
HAVING total(ineligible_requests) > 0
ORDER BY prompt_tokens DESC, requests DESC, reason;
