/*
name: isolation
question: What do scopes keep from being shared, and whose was it?
grain: one row per model, replica, scope and the scope that was the first to compute what they have in common, by the last audit of hot rows; most tokens first
filters: [model, replica]
columns:
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  replica: {type: VARCHAR, unit: name, meaning: "Replica that served the requests, '' if not given."}
  scope: {type: VARCHAR, unit: name, meaning: "Keyed hash of the trust boundary of the requests, '' if there is none."}
  tenants: {type: VARCHAR, unit: name, meaning: "Tenants that use it, those of most requests first."}
  other_scope: {type: VARCHAR, unit: name, meaning: "The scope that computed first what they have in common."}
  other_tenants: {type: VARCHAR, unit: name, meaning: "Tenants that use that one."}
  isolated_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens of these requests that missed only for that: the cause isolated."}
  isolated_requests: {type: BIGINT, unit: requests, meaning: "Requests with such tokens."}
  merged_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens that would be shared if the two were one scope, in a cache that loses nothing, whether or not the engine kept them apart. Over all rows: what one scope for all would share."}
  merged_requests: {type: BIGINT, unit: requests, meaning: "Requests with such tokens."}
  window_since: {type: TIMESTAMP, unit: time, meaning: "First row that was looked at, UTC."}
  window_until: {type: TIMESTAMP, unit: time, meaning: "End of the window, UTC."}
*/
SELECT
    model, replica, scope, tenants, other_scope, other_tenants, isolated_tokens,
    isolated_requests, merged_tokens, merged_requests, window_since, window_until
FROM scope_pairs
WHERE matches(model, getvariable('model')) AND matches(replica, getvariable('replica'))
ORDER BY isolated_tokens DESC, merged_tokens DESC, model, replica, scope, other_scope;
