/*
name: costs
question: What did the tokens cost, what would they have cost without caching, and what do writes take back?
grain: one row, or one per value of `by`; most expensive input first
params:
  by: {type: VARCHAR, default: null, one_of: [model, route, template, tenant], meaning: "One row per value; one row for all if not set."}
  gpu_hour_price: {type: DOUBLE, default: null, meaning: "USD an hour of one GPU costs; the setting prices.gpu_hour_price if not set."}
  gpus_per_replica: {type: BIGINT, default: null, minimum: 1, meaning: "GPUs of a replica; the setting prices.gpus_per_replica if not set, else 1."}
filters: [since, until, model, replica, route, template, tenant]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  requests: {type: BIGINT, unit: requests, meaning: "Rows, one per attempt; decode replicas left out."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Every input token of every row."}
  priced_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Those with a price: uncached_tokens + read_tokens + written_tokens. All USD of input are theirs."}
  unpriced_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "The others: the next three columns."}
  unknown_price_tokens: {type: BIGINT, unit: tokens, meaning: "Without a known price of their model, or of a kind of token their row has."}
  unknown_cached_tokens: {type: BIGINT, unit: tokens, meaning: "Of rows whose cached count is not known, or contradicts the prompt."}
  older_tokens: {type: BIGINT, unit: tokens, meaning: "Of hours that are kept in roll-ups only, which do not know what was written."}
  priced_ratio: {type: DOUBLE, unit: ratio, meaning: "priced_prompt_tokens / prompt_tokens: how much of the traffic the USD speak for."}
  uncached_tokens: {type: BIGINT, unit: tokens, meaning: "Priced prompt tokens neither read from a cache nor written to one."}
  read_tokens: {type: BIGINT, unit: tokens, meaning: "Priced cached tokens."}
  written_tokens: {type: BIGINT, unit: tokens, meaning: "Priced prompt tokens written to a cache."}
  input_usd: {type: DOUBLE, unit: USD, meaning: "What the priced prompt tokens cost, at today's list prices; NULL if there are none."}
  input_without_caching_usd: {type: DOUBLE, unit: USD, meaning: "What they would have cost, all as plain input."}
  write_surcharge_usd: {type: DOUBLE, unit: USD, meaning: "What writing cost more than plain input; it is in input_usd."}
  net_saved_usd: {type: DOUBLE, unit: USD, meaning: "input_without_caching_usd - input_usd; negative where writes cost more than reads saved."}
  output_usd: {type: DOUBLE, unit: USD, meaning: "What generated tokens cost, where count and price are known."}
  unpriced_output_tokens: {type: BIGINT, unit: tokens, meaning: "Generated tokens without a known price."}
  cost_usd: {type: DOUBLE, unit: USD, meaning: "input_usd + output_usd."}
  assumed_5m_write_tokens: {type: BIGINT, unit: tokens, meaning: "Written tokens without a lifetime, priced as writes of 5 minutes though others cost more."}
  assumed_unwritten_tokens: {type: BIGINT, unit: tokens, meaning: "Uncached tokens of rows that do not say what was written, priced as plain input though writes cost more."}
  above_tier_tokens: {type: BIGINT, unit: tokens, meaning: "Priced prompt tokens of prompts so long that they have another price; the base price is used."}
  assumptions: {type: VARCHAR, unit: text, meaning: "The same in words; NULL where nothing was assumed."}
  price_sources: {type: VARCHAR, unit: text, meaning: "Where the prices come from, and of which day they are."}
  freed_gpu_hours: {type: DOUBLE, unit: hours, meaning: "Estimate: saved_seconds of question prefill x GPUs per replica, of models no provider bills. A line of its own: never added to USD saved."}
  gpus_per_replica: {type: BIGINT, unit: GPUs, meaning: "The number of GPUs used for it."}
  freed_gpu_usd: {type: DOUBLE, unit: USD, meaning: "freed_gpu_hours x price of a GPU hour; NULL without that price. Never added to net_saved_usd."}
*/
WITH selected AS (
    SELECT
        *,
        log_dimension(getvariable('by'), model, replica, route, template, tenant) AS value,
        input_usd IS NOT NULL AS priced
    FROM request_costs
    WHERE
        in_window(ts, getvariable('since'), getvariable('until'))
        AND answers(kept_as, getvariable('by'), getvariable('replica'))
        AND matches(model, getvariable('model'))
        AND matches(replica, getvariable('replica'))
        AND matches(route, getvariable('route'))
        AND matches(template, getvariable('template'))
        AND matches(tenant, getvariable('tenant'))
    UNION ALL BY NAME
    SELECT NULL AS value WHERE getvariable('by') IS NULL  -- one row even without traffic
),

sums AS (
    SELECT
        value,
        total(requests) AS requests,
        total(prompt_tokens) AS prompt_tokens,
        total(CASE WHEN priced THEN prompt_tokens END) AS priced_prompt_tokens,
        total(prompt_tokens) - total(CASE WHEN priced THEN prompt_tokens END)
            AS unpriced_prompt_tokens,
        total(CASE WHEN NOT priced AND kept_as = 'row' AND uncached_tokens IS NOT NULL
            THEN prompt_tokens END) AS unknown_price_tokens,
        total(CASE WHEN kept_as = 'row' AND uncached_tokens IS NULL THEN prompt_tokens END)
            AS unknown_cached_tokens,
        total(CASE WHEN kept_as <> 'row' THEN prompt_tokens END) AS older_tokens,
        total(CASE WHEN priced THEN uncached_tokens END) AS uncached_tokens,
        total(CASE WHEN priced THEN read_tokens END) AS read_tokens,
        total(CASE WHEN priced THEN written_tokens END) AS written_tokens,
        sum(input_usd) AS input_usd,
        sum(CASE WHEN priced THEN input_without_caching_usd END) AS input_without_caching_usd,
        sum(CASE WHEN priced THEN write_surcharge_usd END) AS write_surcharge_usd,
        sum(output_usd) AS output_usd,
        total(CASE WHEN output_usd IS NULL THEN output_tokens END) AS unpriced_output_tokens,
        total(CASE WHEN priced THEN assumed_5m_tokens END) AS assumed_5m_write_tokens,
        total(CASE WHEN priced THEN assumed_unwritten_tokens END) AS assumed_unwritten_tokens,
        total(CASE WHEN priced THEN above_tier_tokens END) AS above_tier_tokens,
        string_agg(DISTINCT price_source, '; ' ORDER BY price_source) AS price_sources
    FROM selected
    GROUP BY ALL
),

gpus AS (
    SELECT
        coalesce(
            getvariable('gpu_hour_price'),
            (SELECT value::DOUBLE FROM meta WHERE key = 'gpu_hour_price')
        ) AS gpu_hour_price,
        coalesce(
            getvariable('gpus_per_replica'),
            (SELECT value::BIGINT FROM meta WHERE key = 'gpus_per_replica'), 1
        )::BIGINT AS gpus_per_replica
),

freed AS (
    SELECT value, sum(saved_seconds) / 3600 AS replica_hours
    FROM prefill_savings(
        getvariable('by'), getvariable('since'), getvariable('until'),
        getvariable('model'), getvariable('replica'), getvariable('route'),
        getvariable('template'), getvariable('tenant')
    )
    WHERE model NOT IN (SELECT model FROM model_prices WHERE NOT served_here)
    GROUP BY ALL
)

SELECT
    CASE WHEN getvariable('by') IS NOT NULL THEN coalesce(sums.value, '') END AS value,
    requests, prompt_tokens, priced_prompt_tokens, unpriced_prompt_tokens,
    unknown_price_tokens, unknown_cached_tokens, older_tokens,
    ratio(priced_prompt_tokens, prompt_tokens) AS priced_ratio,
    uncached_tokens, read_tokens, written_tokens,
    input_usd, input_without_caching_usd, write_surcharge_usd,
    input_without_caching_usd - input_usd AS net_saved_usd,
    output_usd, unpriced_output_tokens,
    input_usd + output_usd AS cost_usd,
    assumed_5m_write_tokens, assumed_unwritten_tokens, above_tier_tokens,
    nullif(concat_ws(
        '; ',
        CASE WHEN assumed_5m_write_tokens > 0 THEN 'assumes 5-minute writes' END,
        CASE WHEN assumed_unwritten_tokens > 0 THEN 'assumes no writes where rows name none' END,
        CASE WHEN above_tier_tokens > 0 THEN 'assumes the base price for long prompts' END
    ), '') AS assumptions,
    price_sources,
    replica_hours * gpus_per_replica AS freed_gpu_hours,
    gpus_per_replica,
    freed_gpu_hours * gpu_hour_price AS freed_gpu_usd
FROM sums
CROSS JOIN gpus
LEFT JOIN freed ON freed.value IS NOT DISTINCT FROM sums.value
ORDER BY input_usd DESC NULLS LAST, prompt_tokens DESC, value;
