/*
name: engine_hit_ratio_over_time
question: How did the engines' own token hit ratio move?
grain: one row per step, or one per step and value of `by`; only steps with samples
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica, role, engine, tenant, route], meaning: "One row per step and value; one row per step if not set."}
  step_seconds: {type: BIGINT, default: null, minimum: 1, meaning: "Length of a step; if not set, the shortest round one with at most 300 points. Never finer than what is kept."}
filters: [since, until, model, replica]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "Start of the step, UTC."}
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
*/
WITH sums AS (
    SELECT
        step_start AS ts,
        engine_dimension(getvariable('by'), model, replica, role, engine, tenant, route) AS value,
        sum(prompt_tokens)::BIGINT AS prompt_tokens,
        sum(reported_prompt_tokens) FILTER (NOT ineligible)::BIGINT AS reported_prompt_tokens,
        total(CASE WHEN ineligible THEN prompt_tokens END) AS ineligible_prompt_tokens,
        sum(cached_tokens)::BIGINT AS cached_tokens,
        sum(cached_device)::BIGINT AS cached_device,
        sum(cached_host)::BIGINT AS cached_host,
        sum(cached_disk)::BIGINT AS cached_disk,
        sum(cached_remote)::BIGINT AS cached_remote,
        sum(reported_cached_tokens) FILTER (NOT ineligible)::BIGINT AS reported_cached_tokens,
        sum(lookup_tokens)::BIGINT AS lookup_tokens,
        sum(lookup_hit_tokens)::BIGINT AS lookup_hit_tokens,
        sum(external_lookup_tokens)::BIGINT AS external_lookup_tokens,
        sum(external_hit_tokens)::BIGINT AS external_hit_tokens,
        sum(preemptions)::BIGINT AS preemptions
    FROM engine_cells(
        getvariable('since'), getvariable('until'),
        engine_step(
            getvariable('step_seconds'), getvariable('since'), getvariable('until')
        ),
        getvariable('model'), getvariable('replica')
    )
    GROUP BY ALL
)

SELECT
    ts, value,
    prompt_tokens, reported_prompt_tokens, ineligible_prompt_tokens,
    cached_tokens, cached_device, cached_host, cached_disk, cached_remote,
    computed(reported_prompt_tokens, reported_cached_tokens) AS computed_tokens,
    counter_ratio(reported_cached_tokens, reported_prompt_tokens) AS token_hit_ratio,
    lookup_tokens, lookup_hit_tokens,
    counter_ratio(lookup_hit_tokens, lookup_tokens) AS lookup_hit_ratio,
    external_lookup_tokens, external_hit_tokens,
    counter_ratio(external_hit_tokens, external_lookup_tokens) AS external_hit_ratio,
    preemptions
FROM sums
ORDER BY ts, value;
