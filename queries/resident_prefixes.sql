/*
name: resident_prefixes
question: Which prefixes does the cache hold, and what do they weigh?
grain: one row per prefix and tier of the latest snapshot, what holds most first; no block is in two rows
params:
  template: {type: VARCHAR, default: null, meaning: "Only this template; '' is \"not given\"."}
  tenant: {type: VARCHAR, default: null, meaning: "Only this tenant; '' is \"not given\"."}
  limit: {type: BIGINT, default: 100, minimum: 1, meaning: "At most this many rows."}
filters: [model]
columns:
  prefix: {type: VARCHAR, unit: name, meaning: "First 8 hex letters of the keyed hash of the prefix's last block; it gives no prompt away."}
  hash_key_id: {type: VARCHAR, unit: name, meaning: "Key of the hash; prefixes of different keys are never compared."}
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  tier: {type: VARCHAR, unit: name, meaning: "Tier it is in."}
  template: {type: VARCHAR, unit: name, meaning: "Template of the requests that used it, '' if not known."}
  tenant: {type: VARCHAR, unit: name, meaning: "Tenant of these requests, '' if not known."}
  prefix_tokens: {type: BIGINT, unit: tokens, meaning: "Its length from the start of the prompt."}
  blocks: {type: BIGINT, unit: blocks, meaning: "Blocks that it and what only continues it hold, over all replicas."}
  tokens: {type: BIGINT, unit: tokens, meaning: "The same in tokens."}
  bytes: {type: BIGINT, unit: bytes, meaning: "tokens x bytes per token; NULL where the model's KV geometry is not in the settings."}
  share_ratio: {type: DOUBLE, unit: ratio, meaning: "Of all resident tokens of the model and tier."}
  replicas: {type: BIGINT, unit: count, meaning: "Replicas that hold it."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests known to have used it; NULL where none tell."}
  last_used: {type: TIMESTAMP, unit: time, meaning: "Its latest known use; NULL where none is known."}
  as_of: {type: TIMESTAMP, unit: time, meaning: "When the snapshot was taken."}
*/
SELECT
    substr(printf('%016x', prefix), 1, 8) AS prefix,
    hash_key_id,
    named AS model, tier,
    coalesce(template, '') AS template, coalesce(tenant, '') AS tenant,
    prefix_tokens, blocks, tokens, bytes,
    ratio(tokens, resident_tokens) AS share_ratio,
    replicas, requests, last_used, as_of
FROM held_prefixes
WHERE
    matches(named, getvariable('model'))
    AND matches(coalesce(template, ''), getvariable('template'))
    AND matches(coalesce(tenant, ''), getvariable('tenant'))
ORDER BY tokens DESC, prefix, tier
LIMIT coalesce(getvariable('limit'), 100);
