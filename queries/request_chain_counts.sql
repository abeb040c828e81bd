/*
name: request_chain_counts
question: How many requests have chains of blocks, and how long are these?
grain: one row
params:
  since: {type: TIMESTAMP, default: null, meaning: "Start of the window, inclusive; all time if not set."}
  until: {type: TIMESTAMP, default: null, meaning: "End of the window, exclusive; open if not set."}
columns:
  stored_requests: {type: BIGINT, unit: requests, meaning: "Rows that are still hot, of all time."}
  requests: {type: BIGINT, unit: requests, meaning: "Of them those in the window."}
  prompt_requests: {type: BIGINT, unit: requests, meaning: "Of these those with prompt tokens, decode replicas left out: the rows of request_chains."}
  chain_requests: {type: BIGINT, unit: requests, meaning: "Of these those with a chain."}
  hashes: {type: BIGINT, unit: count, meaning: "Hashes of all these chains, contents and pieces counted too; 8 bytes each."}
*/
WITH asked AS (
    SELECT
        prompt_tokens > 0 AND replica_role IS DISTINCT FROM 'decode' AS has_prompt,
        coalesce(len(block_hashes), 0) AS blocks,
        coalesce(len(content_hashes), 0) AS contents,
        coalesce(len(piece_hashes), 0) AS pieces
    FROM requests
    WHERE in_window(ts, getvariable('since'), getvariable('until'))
)

SELECT
    (SELECT count(*) FROM requests) AS stored_requests,
    count(*) AS requests,
    count(*) FILTER (has_prompt) AS prompt_requests,
    count(*) FILTER (has_prompt AND blocks > 0) AS chain_requests,
    coalesce(sum(blocks + contents + pieces) FILTER (has_prompt), 0)::BIGINT AS hashes
FROM asked;
