/*
name: waterfall
question: What became of every prompt token, and what could not be explained?
grain: one row, or one per value of `by`; most prompt tokens first
params:
  by: {type: VARCHAR, default: null, one_of: [model, route, template, tenant, replica], meaning: "One row per value; one row for all if not set."}
  since: {type: TIMESTAMP, default: null, meaning: "Start of the window, inclusive; all time if not set. Template and tenant are kept by whole hours, which count by their start."}
  replica: {type: VARCHAR, default: null, meaning: "Only this replica; not together with template or tenant, of which nothing is kept by replica."}
filters: [until, model, route, template, tenant]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests with a cached count and a chain whose minute is sealed, two minutes late: those that have causes."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Their prompt tokens: cached_tokens + the thirteen causes that follow, exactly."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "What was served of them, as observed."}
  unserved_tokens: {type: BIGINT, unit: tokens, meaning: "Held by the replica at the look-up, by its events or the provider's lifetime, and not served."}
  evicted_tokens: {type: BIGINT, unit: tokens, meaning: "On the replica since its last reset, and lost to make room."}
  expired_tokens: {type: BIGINT, unit: tokens, meaning: "The same where blocks have a lifetime."}
  reset_tokens: {type: BIGINT, unit: tokens, meaning: "On the replica before a restart, sleep or clear, or only on replicas that were reset since."}
  routed_tokens: {type: BIGINT, unit: tokens, meaning: "On another replica only, evicted there since or not."}
  concurrent_tokens: {type: BIGINT, unit: tokens, meaning: "In a request that had not come to its first token."}
  isolated_tokens: {type: BIGINT, unit: tokens, meaning: "In another scope only: salt or adapter."}
  redeployed_tokens: {type: BIGINT, unit: tokens, meaning: "Under another model or version of its weights only."}
  layout_tokens: {type: BIGINT, unit: tokens, meaning: "Its content stood in another place before."}
  new_tokens: {type: BIGINT, unit: tokens, meaning: "Not seen before, as far back as is remembered (horizon_seconds)."}
  rounding_tokens: {type: BIGINT, unit: tokens, meaning: "Above what the cache could serve at best, and tokens shared inside the first block that differs."}
  ineligible_tokens: {type: BIGINT, unit: tokens, meaning: "No cache could serve it."}
  unexplained_tokens: {type: BIGINT, unit: tokens, meaning: "Of a chain that does not cover its prompt (images): nothing can be told."}
  reset_replica_gone_tokens: {type: BIGINT, unit: tokens, meaning: "Of reset_tokens: only on other replicas, and they were reset since."}
  rounding_split_tokens: {type: BIGINT, unit: tokens, meaning: "Of rounding_tokens: shared inside the first block that differs."}
  new_warming_tokens: {type: BIGINT, unit: tokens, meaning: "Of new_tokens: named before a whole horizon had been seen, so perhaps only older than what is known."}
  warm_before_log_tokens: {type: BIGINT, unit: tokens, meaning: "Of cached_tokens: nothing that is known had brought them there."}
  unreported_requests: {type: BIGINT, unit: requests, meaning: "Requests whose cached tokens are not known, so that nothing is explained."}
  unreported_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Their prompt tokens."}
  chainless_requests: {type: BIGINT, unit: requests, meaning: "Requests with a cached count and no chain of blocks."}
  chainless_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Their prompt tokens."}
  late_requests: {type: BIGINT, unit: requests, meaning: "Requests with a cached count and a chain that came when their minute was sealed; `attribute` explains them."}
  late_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Their prompt tokens."}
  horizon_seconds: {type: BIGINT, unit: seconds, meaning: "How far back it was known what had been seen, the least of the window: less than the horizon while the store is young, or where causes.most_blocks had no room for more. NULL without requests."}
  explained_ratio: {type: DOUBLE, unit: ratio, meaning: "prompt_tokens / (prompt_tokens + chainless_prompt_tokens + late_prompt_tokens): the share of reported prompt tokens that have causes."}
*/
WITH selected AS (
    FROM asked_causes(
        getvariable('by'), getvariable('since'), getvariable('until'),
        getvariable('model'), getvariable('replica'), getvariable('route'),
        getvariable('template'), getvariable('tenant')
    )
    UNION ALL BY NAME
    SELECT NULL AS value WHERE getvariable('by') IS NULL  -- one row even without requests
),

sums AS (
    SELECT
        CASE WHEN getvariable('by') IS NOT NULL THEN coalesce(value, '') END AS value,
        total(requests) AS requests,
        total(prompt_tokens) AS prompt_tokens,
        total(cached_tokens) AS cached_tokens,
        total(unserved_tokens) AS unserved_tokens,
        total(evicted_tokens) AS evicted_tokens,
        total(expired_tokens) AS expired_tokens,
        total(reset_tokens) AS reset_tokens,
        total(routed_tokens) AS routed_tokens,
        total(concurrent_tokens) AS concurrent_tokens,
        total(isolated_tokens) AS isolated_tokens,
        total(redeployed_tokens) AS redeployed_tokens,
        total(layout_tokens) AS layout_tokens,
        total(new_tokens) AS new_tokens,
        total(rounding_tokens) AS rounding_tokens,
        total(ineligible_tokens) AS ineligible_tokens,
        total(unexplained_tokens) AS unexplained_tokens,
        total(reset_replica_gone_tokens) AS reset_replica_gone_tokens,
        total(rounding_split_tokens) AS rounding_split_tokens,
        total(new_warming_tokens) AS new_warming_tokens,
        total(warm_before_log_tokens) AS warm_before_log_tokens,
        total(unreported_requests) AS unreported_requests,
        total(unreported_prompt_tokens) AS unreported_prompt_tokens,
        total(chainless_requests) AS chainless_requests,
        total(chainless_prompt_tokens) AS chainless_prompt_tokens,
        total(late_requests) AS late_requests,
        total(late_prompt_tokens) AS late_prompt_tokens,
        min(remembered_seconds) AS horizon_seconds
    FROM selected
    GROUP BY ALL
)

SELECT
    *,
    ratio(
        prompt_tokens, prompt_tokens + chainless_prompt_tokens + late_prompt_tokens
    ) AS explained_ratio
FROM sums
ORDER BY prompt_tokens DESC, value;
