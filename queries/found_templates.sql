/*
name: found_templates
question: Which templates were found in chains of requests that name none, and how much do they carry?
grain: one row per found template, that of most prompt tokens first
params:
  since: {type: TIMESTAMP, default: null, meaning: "Start of the window of the counts, inclusive; all time if not set."}
  until: {type: TIMESTAMP, default: null, meaning: "End of the window of the counts, exclusive; open if not set."}
columns:
  name: {type: VARCHAR, unit: name, meaning: "auto: and a keyed hash of the prefix; it gives no prompt away and stays the same."}
  given_name: {type: VARCHAR, unit: name, meaning: "What a user called it, which is its template in rows; '' if nothing."}
  prefix_tokens: {type: BIGINT, unit: tokens, meaning: "How long the shared prefix is, in whole blocks; of chunks of text about."}
  heir_of: {type: VARCHAR, unit: name, meaning: "The earlier version it took over from, '' if none is known."}
  first_seen: {type: TIMESTAMP, unit: time, meaning: "Its first request known, of all time."}
  last_seen: {type: TIMESTAMP, unit: time, meaning: "Its last request known, of all time."}
  requests: {type: BIGINT, unit: requests, meaning: "Rows still hot that begin with it and with no longer one."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Every input token of these."}
  prompt_ratio: {type: DOUBLE, unit: ratio, meaning: "prompt_tokens ÷ prompt tokens of all hot rows, those with a template of their own included."}
  shared_ratio: {type: DOUBLE, unit: ratio, meaning: "prefix_tokens of these requests, as far as their prompt tokens are known, ÷ these: what the prefix itself is of them."}
  hash_key_id: {type: VARCHAR, unit: id, meaning: "Key of its hashes, '' if not ours; those of different keys are never compared."}
*/
WITH asked AS (
    SELECT found_template AS name, prompt_tokens
    FROM requests
    WHERE
        replica_role IS DISTINCT FROM 'decode'
        AND in_window(ts, getvariable('since'), getvariable('until'))
),

carried AS (
    SELECT
        name, count(*) AS requests, count(prompt_tokens) AS counted_requests,
        sum(prompt_tokens)::BIGINT AS prompt_tokens
    FROM asked WHERE name IS NOT NULL GROUP BY name
)

SELECT
    name,
    coalesce(given_name, '') AS given_name,
    prefix_tokens,
    coalesce(heir_of, '') AS heir_of,
    first_seen,
    last_seen,
    coalesce(carried.requests, 0) AS requests,
    coalesce(prompt_tokens, 0) AS prompt_tokens,
    ratio(coalesce(prompt_tokens, 0), (SELECT sum(prompt_tokens) FROM asked)) AS prompt_ratio,
    ratio(prefix_tokens * counted_requests, prompt_tokens) AS shared_ratio,
    hash_key_id
FROM found_templates LEFT JOIN carried USING (name)
ORDER BY coalesce(prompt_tokens, 0) DESC, name;
