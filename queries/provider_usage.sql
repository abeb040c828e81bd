/*
name: provider_usage
question: What do providers, and gateways' daily tables, say was used?
grain: one row per reporter, UTC day, provider and model, as reported; never added to request rows
params:
  since: {type: TIMESTAMP, default: null, meaning: "First day, inclusive; all time if not set."}
  until: {type: TIMESTAMP, default: null, meaning: "End of the days, exclusive; open if not set."}
  reporter: {type: VARCHAR, default: null, meaning: "Only this report: openai, anthropic, litellm_daily."}
  provider: {type: VARCHAR, default: null, meaning: "Only this provider."}
  model: {type: VARCHAR, default: null, meaning: "Only this model, as reported."}
  tenant: {type: VARCHAR, default: null, meaning: "Only this project, workspace or key, as reported."}
columns:
  reporter: {type: VARCHAR, unit: name, meaning: "Whose figures these are."}
  day: {type: TIMESTAMP, unit: time, meaning: "UTC day the buckets begin in."}
  provider: {type: VARCHAR, unit: name, meaning: "Who served."}
  model: {type: VARCHAR, unit: name, meaning: "Model as reported; '' if the report was not grouped by model."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests as reported; NULL where the report does not count them."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Every input token as reported, cached and written ones included."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "Of them read from the provider's cache; NULL if not reported."}
  cache_write_tokens: {type: BIGINT, unit: tokens, meaning: "Of them written to it; NULL if not reported."}
  output_tokens: {type: BIGINT, unit: tokens, meaning: "Generated tokens as reported."}
  token_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "cached_tokens / prompt tokens of buckets that report cached ones: the reporter's figure at its own grain."}
  still_open: {type: BOOLEAN, unit: flag, meaning: "The report was made before a bucket had ended for an hour: more may come."}
  read_at: {type: TIMESTAMP, unit: time, meaning: "When the report was made."}
*/
SELECT
    reporter,
    utc_day AS day,
    provider,
    reported_model AS model,
    known_total(requests) AS requests,
    total(prompt_tokens) AS prompt_tokens,
    known_total(cached_tokens) AS cached_tokens,
    known_total(cache_write_tokens) AS cache_write_tokens,
    known_total(output_tokens) AS output_tokens,
    counter_ratio(
        known_total(cached_tokens),
        total(CASE WHEN cached_tokens IS NOT NULL THEN prompt_tokens END)
    ) AS token_hit_ratio,
    bool_or(NOT settled) AS still_open,
    max(read_at) AS read_at
FROM reported_usage
WHERE
    in_window(utc_day, getvariable('since'), getvariable('until'))
    AND matches(reporter, getvariable('reporter'))
    AND matches(provider, getvariable('provider'))
    AND matches(reported_model, getvariable('model'))
    AND matches(tenant, getvariable('tenant'))
GROUP BY ALL
-- A bucket in which nothing was used only says that it was covered.
HAVING reported_model <> '' OR sum(prompt_tokens) > 0 OR sum(output_tokens) > 0
ORDER BY reporter, day, prompt_tokens DESC, provider, model;
