/*
name: routing_losses
question: What was lost because another replica had computed it, and how evenly do replicas compute?
grain: one row per model; most tokens lost first
filters: [since, until, model, route]
columns:
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  replicas: {type: BIGINT, unit: replicas, meaning: "Replicas that served its requests."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens of requests that have causes."}
  routed_tokens: {type: BIGINT, unit: tokens, meaning: "Of them, what another live replica had computed: the cause routed. Much of it would have been evicted on this one too."}
  routed_ratio: {type: DOUBLE, unit: ratio, meaning: "routed_tokens / prompt_tokens: the most that a router could win."}
  imbalance_ratio: {type: DOUBLE, unit: factor, meaning: "The most that a replica computed / the mean of all: 1 = all the same. What sends every request to where its prefix is raises it."}
  busiest_replica: {type: VARCHAR, unit: name, meaning: "The replica that computed most, '' if not given."}
  busiest_computed_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens it computed."}
  copies_ratio: {type: DOUBLE, unit: copies per block, meaning: "Blocks resident on device over all replicas / different ones, at the latest count of KV-cache events; NULL where there are none."}
*/
WITH by_replica AS (
    SELECT
        model, replica,
        sum(prompt_tokens) AS prompt_tokens,
        sum(prompt_tokens) - sum(cached_tokens) AS computed_tokens,
        sum(routed_tokens) AS routed_tokens
    FROM cause_sums
    WHERE
        kept_as = 'minute'
        AND in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(model, getvariable('model'))
        AND matches(route, getvariable('route'))
    GROUP BY ALL
    HAVING sum(prompt_tokens) > 0
),

copies AS (
    SELECT
        coalesce(model, sole) AS model,
        ratio(arg_max(resident_blocks, minute), arg_max(unique_blocks, minute)) AS copies_ratio
    FROM block_copies CROSS JOIN sole_model
    WHERE
        replica_b IS NULL AND tier = 'device'
        AND in_window(minute, getvariable('since'), getvariable('until'))
    GROUP BY ALL
)

SELECT
    r.model,
    count(*) AS replicas,
    sum(r.prompt_tokens)::BIGINT AS prompt_tokens,
    sum(r.routed_tokens)::BIGINT AS routed_tokens,
    ratio(sum(r.routed_tokens), sum(r.prompt_tokens)) AS routed_ratio,
    ratio(max(r.computed_tokens) * count(*), sum(r.computed_tokens)) AS imbalance_ratio,
    arg_max(r.replica, r.computed_tokens) AS busiest_replica,
    max(r.computed_tokens)::BIGINT AS busiest_computed_tokens,
    any_value(copies.copies_ratio) AS copies_ratio
FROM by_replica AS r
LEFT JOIN copies USING (model)
GROUP BY r.model
ORDER BY routed_tokens DESC, r.model;
