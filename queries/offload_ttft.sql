/*
name: offload_ttft
question: Do requests served from a lower tier get their first token sooner than those that compute as much?
grain: one row per comparison (and value of `by`, and class with `within`) that has strata with 10 requests on each side
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica], meaning: "One row more per value; one per comparison if not set."}
  within: {type: VARCHAR, default: null, one_of: [computed], meaning: "One row per class of tokens to compute without lower tiers; one for all if not set."}
filters: [since, until, model, replica]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  comparison: {type: VARCHAR, unit: name, meaning: "host, disk or remote: requests served from it against requests that computed as much; transfers: requests that computed while transfers ran against while none ran."}
  within_from: {type: BIGINT, unit: tokens, meaning: "Smallest count of the class; NULL without within."}
  within_to: {type: BIGINT, unit: tokens, meaning: "First count above the class; NULL without within."}
  ttft_point: {type: VARCHAR, unit: name, meaning: "Where the clock stands; that of most requests, never mixed."}
  served_requests: {type: BIGINT, unit: requests, meaning: "Requests compared: served from the tier, or while transfers ran."}
  computed_requests: {type: BIGINT, unit: requests, meaning: "Requests they are compared with."}
  served_seconds: {type: DOUBLE, unit: seconds, meaning: "Median time to first token less queue of the former, over strata by their requests."}
  computed_seconds: {type: DOUBLE, unit: seconds, meaning: "The same of the latter, over the same strata by the former's requests."}
  difference_seconds: {type: DOUBLE, unit: seconds, meaning: "Difference of medians within strata, weighted; negative = sooner."}
  low_seconds: {type: DOUBLE, unit: seconds, meaning: "Lower end of its 95 % interval, from order statistics."}
  high_seconds: {type: DOUBLE, unit: seconds, meaning: "Upper end of it."}
  mean_difference_seconds: {type: DOUBLE, unit: seconds, meaning: "The same difference of means: slow loads weigh in here."}
  fixed_seconds: {type: DOUBLE, unit: seconds, meaning: "Estimate: what a load costs whatever its length; NULL below 50 requests or without a line."}
  load_seconds_per_token: {type: DOUBLE, unit: seconds per token, meaning: "Estimate: what each token loaded costs a request."}
  prefill_seconds_per_token: {type: DOUBLE, unit: seconds per token, meaning: "What each computed token costs, by the requests that computed, within strata."}
  break_even_tokens: {type: DOUBLE, unit: tokens, meaning: "Estimate: from so many tokens on a load is sooner than computing; NULL where no load seen was long enough, or no line can be drawn."}
*/
SELECT
    CASE WHEN getvariable('by') IS NOT NULL THEN value END AS value,
    comparison,
    within_from,
    class_to(within_from) AS within_to,
    ttft_point, served_requests, computed_requests, served_seconds, computed_seconds,
    difference_seconds, low_seconds, high_seconds, mean_difference_seconds,
    fixed_seconds, load_seconds_per_token, prefill_seconds_per_token, break_even_tokens
FROM offload_differences(
    getvariable('by'), getvariable('within'), getvariable('since'), getvariable('until'),
    getvariable('model'), getvariable('replica')
)
ORDER BY value, comparison, within_from;
