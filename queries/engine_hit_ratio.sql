/*
name: engine_hit_ratio
question: What share of the prompt tokens came from cache by the engines' own counters?
grain: one row, or one per value of `by`; most prompt tokens first
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica, role, engine, tenant, route], meaning: "One row per value; one row for all if not set."}
filters: [since, until, model, replica]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Increase of the prompt token counters; NULL if no sample has them."}
  reported_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Denominator of token_hit_ratio: eligible prompt tokens whose cached count is known (look-ups where only look-up counters exist)."}
  ineligible_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens of replicas with caching off or without any look-up."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "Increase of the cached token counters; look-up hits where only those exist."}
  cached_device: {type: BIGINT, unit: tokens, meaning: "Cached tokens from the device tier; NULL if the engine does not say."}
  cached_host: {type: BIGINT, unit: tokens, meaning: "Cached tokens from the host tier."}
  cached_disk: {type: BIGINT, unit: tokens, meaning: "Cached tokens from the disk tier."}
  cached_remote: {type: BIGINT, unit: tokens, meaning: "Cached tokens from the remote tier."}
  computed_tokens: {type: BIGINT, unit: tokens, meaning: "reported_prompt_tokens less their cached tokens: what prefill did for them."}
  token_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "Cached / reported_prompt_tokens; NULL without them."}
  lookup_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens looked up in the local cache."}
  lookup_hit_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens the local look-up found."}
  lookup_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "lookup_hit_tokens / lookup_tokens: the local cache alone."}
  external_lookup_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens the connector could serve: what the local look-up missed, also where the engine counts whole prompts."}
  external_hit_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens the connector found."}
  external_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "external_hit_tokens / external_lookup_tokens: success of the connector, not a share of the prompt."}
  preemptions: {type: BIGINT, unit: count, meaning: "Requests put back for lack of KV memory."}
  resets: {type: BIGINT, unit: count, meaning: "Restarts of a process seen in the window."}
  gaps: {type: BIGINT, unit: count, meaning: "Intervals with missed scrapes; their increase is spread evenly."}
  caution: {type: VARCHAR, unit: text, meaning: "What to know before using the row; NULL if nothing."}
  provenance: {type: VARCHAR, unit: text, meaning: "When the counters are credited, how often, in what unit."}
*/
WITH selected AS (
    SELECT
        *,
        engine_dimension(getvariable('by'), model, replica, role, engine, tenant, route) AS value
    FROM engine_cells(
        getvariable('since'), getvariable('until'), NULL,
        getvariable('model'), getvariable('replica')
    )
    UNION ALL BY NAME
    SELECT NULL AS value WHERE getvariable('by') IS NULL  -- one row even without samples
),

sums AS (
    SELECT
        value,
        sum(prompt_tokens)::BIGINT AS prompt_tokens,
        sum(reported_prompt_tokens) FILTER (NOT ineligible)::BIGINT AS reported_prompt_tokens,
        total(CASE WHEN ineligible THEN prompt_tokens END) AS ineligible_prompt_tokens,
        sum(cached_tokens)::BIGINT AS cached_tokens,
        sum(cached_device)::BIGINT AS cached_device,
        sum(cached_host)::BIGINT AS cached_host,
        sum(cached_disk)::BIGINT AS cached_disk,
        sum(cached_remote)::BIGINT AS cached_remote,
        sum(reported_cached_tokens) FILTER (NOT ineligible)::BIGINT AS reported_cached_tokens,
        total(CASE WHEN reported_prompt_tokens IS NULL THEN cached_tokens END)
            AS unpaired_cached_tokens,
        sum(lookup_tokens)::BIGINT AS lookup_tokens,
        sum(lookup_hit_tokens)::BIGINT AS lookup_hit_tokens,
        sum(external_lookup_tokens)::BIGINT AS external_lookup_tokens,
        sum(external_hit_tokens)::BIGINT AS external_hit_tokens,
        sum(preemptions)::BIGINT AS preemptions,
        total(resets) AS resets,
        total(gaps) AS gaps,
        string_agg(DISTINCT replica, ', ' ORDER BY replica) FILTER (from_lookups) AS looked_up,
        string_agg(DISTINCT replica, ', ' ORDER BY replica) FILTER (slept) AS slept,
        string_agg(DISTINCT replica, ', ' ORDER BY replica) FILTER (
            measured_seconds IS NOT NULL AND NOT ineligible AND reported_prompt_tokens IS NULL
        ) AS missing,
        string_agg(DISTINCT nullif(provenance, ''), ', ' ORDER BY nullif(provenance, ''))
            AS provenance
    FROM selected
    GROUP BY value
)

SELECT
    value,
    prompt_tokens, reported_prompt_tokens, ineligible_prompt_tokens,
    cached_tokens, cached_device, cached_host, cached_disk, cached_remote,
    computed(reported_prompt_tokens, reported_cached_tokens) AS computed_tokens,
    counter_ratio(reported_cached_tokens, reported_prompt_tokens) AS token_hit_ratio,
    lookup_tokens, lookup_hit_tokens,
    counter_ratio(lookup_hit_tokens, lookup_tokens) AS lookup_hit_ratio,
    external_lookup_tokens, external_hit_tokens,
    counter_ratio(external_hit_tokens, external_lookup_tokens) AS external_hit_ratio,
    preemptions,
    resets, gaps,
    nullif(concat_ws(
        '; ',
        CASE WHEN lookup_tokens > prompt_tokens AND preemptions > 0
            THEN 'look-ups include recompute after preemption: they exceed the prompt tokens by '
                || (lookup_tokens - prompt_tokens) END,
        CASE WHEN ineligible_prompt_tokens > 0
            THEN 'look-up skipped or caching off for ' || ineligible_prompt_tokens
                || ' prompt tokens' END,
        CASE WHEN reported_cached_tokens > reported_prompt_tokens
            THEN 'cached tokens exceed the prompt tokens by '
                || (reported_cached_tokens - reported_prompt_tokens) END,
        CASE WHEN unpaired_cached_tokens > 0
            THEN 'no prompt tokens known for ' || unpaired_cached_tokens || ' cached tokens' END,
        'cached tokens from look-up counters: ' || looked_up,
        'metric missing: ' || missing,
        'cache cleared by sleep: ' || slept,
        CASE WHEN resets > 0 THEN 'restarts: ' || resets END,
        CASE WHEN gaps > 0 THEN 'gaps in the scrapes, spread evenly: ' || gaps END
    ), '') AS caution,
    provenance
FROM sums
ORDER BY prompt_tokens DESC NULLS LAST, value;
