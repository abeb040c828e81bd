/*
name: missed_change
question: Which causes of missed tokens grew between two windows?
grain: one row per cause that has tokens in either window, or per value of `by` and cause; what grew most first
params:
  by: {type: VARCHAR, default: null, one_of: [model, route, template, tenant, replica], meaning: "One row per value and cause; one row per cause if not set."}
  since: {type: TIMESTAMP, default: null, required: true, meaning: "Start of the window, inclusive. Template and tenant are kept by whole hours: by them a window begins with the hour it begins in."}
  until: {type: TIMESTAMP, default: null, required: true, meaning: "Its end, exclusive."}
  baseline_since: {type: TIMESTAMP, default: null, required: true, meaning: "Start of the window to compare with, likewise."}
  baseline_until: {type: TIMESTAMP, default: null, required: true, meaning: "Its end, exclusive."}
  replica: {type: VARCHAR, default: null, meaning: "Only this replica; not together with template or tenant, of which nothing is kept by replica."}
filters: [model, route, template, tenant]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; '' without by."}
  cause: {type: VARCHAR, unit: name, meaning: "Why, as docs/causes.md says."}
  tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens that missed for this cause in the window."}
  tokens_before: {type: BIGINT, unit: tokens, meaning: "The same in the baseline."}
  prompt_ratio: {type: DOUBLE, unit: ratio, meaning: "tokens / prompt tokens of the window's requests that have causes; NULL where none has."}
  prompt_ratio_before: {type: DOUBLE, unit: ratio, meaning: "The same in the baseline."}
  change_ratio: {type: DOUBLE, unit: ratio, meaning: "prompt_ratio - prompt_ratio_before; NULL unless both windows have requests with causes."}
  missed_change_ratio: {type: DOUBLE, unit: ratio, meaning: "Sum of change_ratio over all causes of the value: by how much the hit ratio of its requests with causes fell."}
  explained_ratio: {type: DOUBLE, unit: ratio, meaning: "Share of the reported prompt tokens that have causes, in the window."}
  explained_ratio_before: {type: DOUBLE, unit: ratio, meaning: "The same in the baseline."}
  is_evidence: {type: BOOLEAN, unit: flag, meaning: "One of the at most three causes that grew most, by a point or more, where more missed by a point or more and half of the reported prompt tokens or more have causes in both windows."}
  evidence: {type: VARCHAR, unit: text, meaning: "What stands beside a drop: the cause with its share of the prompt tokens before and now; NULL for what is no evidence."}
*/
SELECT
    value, cause, tokens, tokens_before, prompt_ratio, prompt_ratio_before, change_ratio,
    missed_change_ratio, explained_ratio, explained_ratio_before, is_evidence, evidence
FROM missed_changes(
    getvariable('by'), false, getvariable('baseline_since')::TIMESTAMP,
    getvariable('baseline_until')::TIMESTAMP, getvariable('since')::TIMESTAMP,
    getvariable('until')::TIMESTAMP,
    getvariable('model'), getvariable('replica'), getvariable('route'), getvariable('template'),
    getvariable('tenant')
)
ORDER BY change_ratio DESC NULLS LAST, tokens DESC, value, cause;
