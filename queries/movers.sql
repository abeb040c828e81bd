/*
name: movers
question: Where did the token hit ratio move against the time before, and what did that cost?
grain: one row per value of `by` with traffic in either window; largest change in tokens first
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica, route, template, template_version, tenant, source], required: true, meaning: "The dimension to compare along."}
  baseline_since: {type: TIMESTAMP, default: null, meaning: "Start of the baseline; if neither border is set, the window of equal length just before."}
  baseline_until: {type: TIMESTAMP, default: null, meaning: "End of the baseline, exclusive; the start of the window if not set."}
filters: [since, until, model, replica, route, template, tenant]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Every input token in the window."}
  token_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "Cached / reported prompt tokens in the window."}
  coverage_ratio: {type: DOUBLE, unit: ratio, meaning: "Reported / eligible prompt tokens in the window."}
  computed_tokens: {type: BIGINT, unit: tokens, meaning: "Reported prompt tokens less cached tokens in the window."}
  prompt_tokens_before: {type: BIGINT, unit: tokens, meaning: "The same in the baseline."}
  token_hit_ratio_before: {type: DOUBLE, unit: ratio, meaning: "The same in the baseline."}
  coverage_ratio_before: {type: DOUBLE, unit: ratio, meaning: "The same in the baseline."}
  computed_tokens_before: {type: BIGINT, unit: tokens, meaning: "The same in the baseline."}
  change_ratio: {type: DOUBLE, unit: ratio, meaning: "token_hit_ratio - token_hit_ratio_before; NULL if either has no data."}
  extra_computed_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens computed in the window because the ratio changed: -change_ratio x reported prompt tokens now."}
*/
SELECT
    value,
    prompt_tokens,
    ratio(cached_tokens, reported_tokens) AS token_hit_ratio,
    ratio(reported_tokens, prompt_tokens - ineligible_tokens) AS coverage_ratio,
    reported_tokens - cached_tokens AS computed_tokens,
    prompt_tokens_before,
    ratio(cached_tokens_before, reported_tokens_before) AS token_hit_ratio_before,
    ratio(reported_tokens_before, prompt_tokens_before - ineligible_tokens_before)
        AS coverage_ratio_before,
    reported_tokens_before - cached_tokens_before AS computed_tokens_before,
    token_hit_ratio - token_hit_ratio_before AS change_ratio,
    round(-change_ratio * reported_tokens)::BIGINT AS extra_computed_tokens
FROM compared_windows(
    getvariable('by'), getvariable('baseline_since'), getvariable('baseline_until'),
    getvariable('since'), getvariable('until'), getvariable('model'), getvariable('replica'),
    getvariable('route'), getvariable('template'), getvariable('tenant')
)
ORDER BY abs(extra_computed_tokens) DESC NULLS LAST, prompt_tokens DESC, value;
