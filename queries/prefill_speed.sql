/*
name: prefill_speed
question: How fast does each replica prefill, and how sure is that?
grain: one row per replica and model with at least 100 requests of different length
filters: [since, until, model, replica]
columns:
  replica: {type: VARCHAR, unit: name, meaning: "Replica, '' if requests do not name it."}
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests behind the estimate."}
  tokens_per_second: {type: DOUBLE, unit: tokens per second, meaning: "Estimate: 1 / slope of prefill time on computed tokens."}
  overhead_seconds: {type: DOUBLE, unit: seconds, meaning: "Estimate: the intercept, time of a prefill beside its tokens, 0 where it is below; NULL where the time holds more than the engine's work (a queue that is not known, or the way from a gateway or client)."}
  fit: {type: DOUBLE, unit: ratio, meaning: "Share of the variation the slope explains (r squared)."}
  min_computed_tokens: {type: BIGINT, unit: tokens, meaning: "Fewest computed tokens among them: the estimate holds from here."}
  max_computed_tokens: {type: BIGINT, unit: tokens, meaning: "Most computed tokens among them: to here."}
  basis: {type: VARCHAR, unit: text, meaning: "Which time was used, and where it was measured."}
*/
SELECT
    replica, model, requests, tokens_per_second, overhead_seconds, fit,
    min_computed_tokens, max_computed_tokens, basis
FROM prefill_speeds(
    getvariable('since'), getvariable('until'), getvariable('model'), getvariable('replica')
)
ORDER BY replica, model;
