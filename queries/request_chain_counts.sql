/*
name: request_chain_counts
question: How many requests have chains of blocks, and how long are these?
grain: one row, or one per value of `by`; most prompt tokens that can be replayed first
params:
  by: {type: VARCHAR, default: null, one_of: [model], meaning: "One row per value; one row for all if not set."}
filters: [since, until, model]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  stored_requests: {type: BIGINT, unit: requests, meaning: "Rows that are still hot, of all time and every model."}
  requests: {type: BIGINT, unit: requests, meaning: "Of them those in the window."}
  prompt_requests: {type: BIGINT, unit: requests, meaning: "Of these those with prompt tokens, decode replicas left out: the rows of request_chains."}
  chain_requests: {type: BIGINT, unit: requests, meaning: "Of these those with a chain."}
  chain_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens of those whose chain names blocks of tokens: what can be replayed."}
  hashes: {type: BIGINT, unit: count, meaning: "Hashes of all these chains, contents and pieces counted too; 8 bytes each."}
*/
WITH asked AS (
    SELECT
        CASE
            WHEN getvariable('by') IS NULL THEN NULL
            WHEN getvariable('by') = 'model' THEN coalesce(model, '')
            ELSE error('unknown dimension ' || getvariable('by'))
        END AS value,
        prompt_tokens, text_bytes,
        prompt_tokens > 0 AND replica_role IS DISTINCT FROM 'decode' AS has_prompt,
        coalesce(len(block_hashes), 0) AS blocks,
        coalesce(len(content_hashes), 0) AS contents,
        coalesce(len(piece_hashes), 0) AS pieces,
        true AS is_request
    FROM requests
    WHERE
        in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
    UNION ALL BY NAME
    SELECT NULL AS value WHERE getvariable('by') IS NULL  -- one row even without requests
)

SELECT
    value,
    (SELECT count(*) FROM requests) AS stored_requests,
    count(is_request) AS requests,
    count(*) FILTER (has_prompt) AS prompt_requests,
    count(*) FILTER (has_prompt AND blocks > 0) AS chain_requests,
    total(CASE WHEN has_prompt AND blocks > 0 AND text_bytes IS NULL THEN prompt_tokens END)
        AS chain_prompt_tokens,
    total(CASE WHEN has_prompt THEN blocks + contents + pieces END) AS hashes
FROM asked
GROUP BY value
ORDER BY chain_prompt_tokens DESC, value;
