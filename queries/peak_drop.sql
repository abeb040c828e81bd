/*
name: peak_drop
question: Did the hit ratio drop beyond what its hours and its load explain, and by what cause?
grain: one row per window, model (and value of `by`); the last window first
params:
  by: {type: VARCHAR, default: null, one_of: [model, route, template, tenant, replica], meaning: "One row more per value; one per model if not set. Replicas are told apart by engine counters alone."}
  since: {type: TIMESTAMP, default: null, meaning: "Judge every window from here on; the last one only if not set."}
  until: {type: TIMESTAMP, default: null, meaning: "End of the last window, exclusive; after the newest request if not set, or page of an engine where none is logged."}
  window_seconds: {type: BIGINT, default: 3600, meaning: "Length of a window."}
  zone: {type: VARCHAR, default: UTC, meaning: "Time zone whose hours of the week are compared, like Europe/Berlin."}
  min_tokens: {type: BIGINT, default: 20000, meaning: "Windows and weeks with fewer reported prompt tokens are not judged."}
  min_requests: {type: BIGINT, default: 30, meaning: "Windows with fewer reported requests are not judged; a third of them is enough where a template hits less than a quarter of what is expected."}
filters: [model, route, template, tenant]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "Start of the window."}
  model: {type: VARCHAR, unit: name, meaning: "The model, '' if not given."}
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given or without by."}
  basis: {type: VARCHAR, unit: name, meaning: "log: from request rows; engine: from engine counters, of models no log reports on and of replicas. Never both in one row."}
  reported_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens with a known cached count, in the log or by the counters."}
  token_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "Cached / reported prompt tokens in the window."}
  coverage_ratio: {type: DOUBLE, unit: ratio, meaning: "Reported / eligible prompt tokens."}
  expected_ratio: {type: DOUBLE, unit: ratio, meaning: "Median of the same local hours of the last four weeks, or what is usual at this load where that is lower; only the latter without a week of history."}
  expected_low_ratio: {type: DOUBLE, unit: ratio, meaning: "expected_ratio less three times what ratios of so much traffic stray by chance."}
  expected_high_ratio: {type: DOUBLE, unit: ratio, meaning: "expected_ratio plus the same."}
  history_weeks: {type: BIGINT, unit: count, meaning: "Of the last four weeks, those with enough traffic in these hours."}
  method: {type: VARCHAR, unit: name, meaning: "same hours, equal pressure (no week of history yet), or none (nothing to compare with)."}
  pressure_ratio: {type: DOUBLE, unit: ratio, meaning: "Mean KV usage of the model's replicas (or of the one) in the window."}
  usual_pressure_ratio: {type: DOUBLE, unit: ratio, meaning: "Median of the same in the weeks before."}
  load_part_ratio: {type: DOUBLE, unit: ratio, meaning: "What load explains: usual ratio of these hours less the ratio at this load (median of earlier hours of like KV usage and traffic, else by their slope), at least 0."}
  drop_ratio: {type: DOUBLE, unit: ratio, meaning: "expected_ratio - token_hit_ratio: what hours and load do not explain. Negative = above."}
  is_drop: {type: BOOLEAN, unit: flag, meaning: "Beyond chance: 5 points and 3.5 deviations; 6 and 2.5 where another mix explains most; 3 and 1 where a cause is in evidence (4 and 2 for memory pressure); a fall of 10 points under a load that was never seen, with far more KV in use than usual; or telemetry failed or caching was switched off for a fifth of the tokens. NULL where nothing can be judged."}
  class: {type: VARCHAR, unit: name, meaning: "Kind of the drop; 'memory pressure as expected' where load explains it and it is none. A recovering drop keeps that of its cause."}
  evidence: {type: VARCHAR, unit: text, meaning: "The figures behind the class; of a recovering drop those its cause had."}
  contributor: {type: VARCHAR, unit: name, meaning: "Template (and version), by engine counters replica, that lost most by a lower ratio of its own."}
  contributor_share_ratio: {type: DOUBLE, unit: ratio, meaning: "Its loss / losses of all by lower ratios of their own."}
  hurts: {type: BOOLEAN, unit: flag, meaning: "TTFT p90 (of the log, else of the engines' histograms of the model) a quarter above its usual one in these hours, or computed tokens within a tenth of the highest hour in four weeks. NULL where no first tokens are timed."}
  severity: {type: VARCHAR, unit: name, meaning: "page: a drop of known history that hurts, from 5 points and 3.5 deviations on; without a cause in evidence (none found, or a layout by its fall alone) only of whole models and from 15 points and 5 deviations on, of another mix only on top of the usual traffic, of memory pressure only at loads seen before, of telemetry never, by engine counters only where no log names a model that no engine has (it may be the same by another name). ticket: any other drop, and a recovering one that was a ticket in any window since its cause was in evidence."}
  is_recovering: {type: BOOLEAN, unit: flag, meaning: "Whether it is a drop that goes on when its cause is no longer in evidence: no other cause is, and the ratio came no further below the usual one of its hours, chance apart, than it was the window before; at most six windows."}
*/
SELECT * EXCLUDE (place)
FROM judged_drops(
    getvariable('by'), getvariable('since'), getvariable('until'),
    coalesce(getvariable('window_seconds'), 3600), coalesce(getvariable('zone'), 'UTC'),
    coalesce(getvariable('min_tokens'), 20000), coalesce(getvariable('min_requests'), 30),
    getvariable('model'), getvariable('route'), getvariable('template'), getvariable('tenant')
)
ORDER BY place, model, value;
