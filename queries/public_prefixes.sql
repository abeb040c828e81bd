/*
name: public_prefixes
question: Which prefixes do so many tenants send that they could be kept once for all?
grain: one row per prefix, by the last audit of hot rows; most tokens won first
filters: [model]
columns:
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  prefix: {type: VARCHAR, unit: name, meaning: "A name of the whole prefix that lasts as long as the key of the hashes; it tells nothing of the text."}
  tokens: {type: BIGINT, unit: tokens, meaning: "Length of the prefix, in whole blocks."}
  callers: {type: BIGINT, unit: tenants, meaning: "Tenants that send it, or scopes where requests name no tenant: at least isolation.least_tenants."}
  scopes: {type: BIGINT, unit: count, meaning: "Scopes it is kept in now, one copy each."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests of which it is the longest public prefix."}
  won_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens that these would have cached more if it were kept in one scope, by replay in a cache that loses nothing: the most there is to win."}
  first_ts: {type: TIMESTAMP, unit: time, meaning: "First such request, UTC."}
  last_ts: {type: TIMESTAMP, unit: time, meaning: "Last such request, UTC."}
  window_since: {type: TIMESTAMP, unit: time, meaning: "First row that was looked at, UTC."}
  window_until: {type: TIMESTAMP, unit: time, meaning: "End of the window, UTC."}
*/
SELECT
    model, prefix, tokens, callers, scopes, requests, won_tokens, first_ts, last_ts,
    window_since, window_until
FROM public_prefixes
WHERE matches(model, getvariable('model'))
ORDER BY won_tokens DESC, tokens DESC, model, prefix;
