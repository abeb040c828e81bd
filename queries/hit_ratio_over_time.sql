/*
name: hit_ratio_over_time
question: How did the token hit ratio move, and how much traffic was behind it?
grain: one row per step, or one per step and value of `by`; only steps with traffic
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica, route, template, template_version, tenant, source], meaning: "One row per step and value; one row per step if not set."}
  step_seconds: {type: BIGINT, default: null, minimum: 1, meaning: "Length of a step; if not set, the shortest round one with at most 300 points. Never finer than what is kept."}
filters: [since, until, model, replica, route, template, tenant]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "Start of the step, UTC."}
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  requests: {type: BIGINT, unit: requests, meaning: "Rows, one per attempt; decode replicas left out."}
  reported_requests: {type: BIGINT, unit: requests, meaning: "Requests whose cached count is known and that the cache could serve."}
  ineligible_requests: {type: BIGINT, unit: requests, meaning: "Requests no prefix cache could serve: look-up skipped, caching off, answered by a response cache, nothing generated."}
  reuse_requests: {type: BIGINT, unit: requests, meaning: "Reported requests with any cached token."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Every input token, cached or not, of every row."}
  reported_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens of reported requests: the denominator of token_hit_ratio."}
  ineligible_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens of ineligible requests, left out of every ratio."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens of reported requests whose KV was reused."}
  cached_device: {type: BIGINT, unit: tokens, meaning: "Cached tokens known to come from the device tier; NULL where no row names its tier."}
  cached_host: {type: BIGINT, unit: tokens, meaning: "Cached tokens known to come from the host tier; NULL where no row names its tier."}
  cached_disk: {type: BIGINT, unit: tokens, meaning: "Cached tokens known to come from the disk tier; NULL where no row names its tier."}
  cached_remote: {type: BIGINT, unit: tokens, meaning: "Cached tokens known to come from the remote tier; NULL where no row names its tier."}
  computed_tokens: {type: BIGINT, unit: tokens, meaning: "reported_prompt_tokens - cached_tokens: what prefill did for reported requests."}
  output_tokens: {type: BIGINT, unit: tokens, meaning: "Generated tokens."}
  token_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "cached_tokens / reported_prompt_tokens; NULL without reported tokens."}
  coverage_ratio: {type: DOUBLE, unit: ratio, meaning: "reported_prompt_tokens / (prompt_tokens - ineligible_prompt_tokens)."}
  request_coverage_ratio: {type: DOUBLE, unit: ratio, meaning: "reported_requests / (requests - ineligible_requests)."}
  request_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "reuse_requests / reported_requests; read it only next to token_hit_ratio."}
*/
-- Read twice, the first time few columns: cheaper than to keep millions of rows.
WITH selected AS NOT MATERIALIZED (
    FROM asked_traffic(
        getvariable('by'), getvariable('since'), getvariable('until'),
        getvariable('model'), getvariable('replica'), getvariable('route'),
        getvariable('template'), getvariable('tenant')
    )
),

step AS (
    SELECT
        log_step(
            getvariable('step_seconds'), getvariable('since'), getvariable('until'),
            ts, kept_seconds(kept_as)
        ) AS seconds
    FROM selected
),

sums AS (
    SELECT
        time_bucket(to_seconds(seconds), ts) AS ts,
        CASE WHEN getvariable('by') IS NOT NULL THEN coalesce(value, '') END AS value,
        total(requests) AS requests,
        total(reported_requests) AS reported_requests,
        total(ineligible_requests) AS ineligible_requests,
        total(reuse_requests) AS reuse_requests,
        total(prompt_tokens) AS prompt_tokens,
        total(reported_prompt_tokens) AS reported_prompt_tokens,
        total(ineligible_prompt_tokens) AS ineligible_prompt_tokens,
        total(cached_tokens) AS cached_tokens,
        known_total(cached_device) AS cached_device,
        known_total(cached_host) AS cached_host,
        known_total(cached_disk) AS cached_disk,
        known_total(cached_remote) AS cached_remote,
        total(reported_prompt_tokens) - total(cached_tokens) AS computed_tokens,
        total(output_tokens) AS output_tokens
    FROM selected, step
    GROUP BY ALL
)

SELECT
    *,
    ratio(cached_tokens, reported_prompt_tokens) AS token_hit_ratio,
    ratio(reported_prompt_tokens, prompt_tokens - ineligible_prompt_tokens) AS coverage_ratio,
    ratio(reported_requests, requests - ineligible_requests) AS request_coverage_ratio,
    ratio(reuse_requests, reported_requests) AS request_hit_ratio
FROM sums
ORDER BY ts, value;
