/*
name: request_chains
question: Which blocks did the prompt of each request have, and what was cached of it?
grain: one row per attempt, rows still hot; in no order (chains are too large to sort), see batch and position
many_rows: true
filters: [since, until, model]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "Start of the request, UTC."}
  arrived: {type: TIMESTAMP, unit: time, meaning: "When the row reached the store, UTC."}
  trace_id: {type: VARCHAR, unit: id, meaning: "Trace within which the names of blocks mean something, where hash_scope is trace."}
  session: {type: VARCHAR, unit: id, meaning: "Conversation, '' if not given."}
  replica: {type: VARCHAR, unit: name, meaning: "Replica, '' if not given."}
  provider: {type: VARCHAR, unit: name, meaning: "Provider, '' if not given."}
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  model_fingerprint: {type: VARCHAR, unit: name, meaning: "Weight version, '' if not given."}
  route: {type: VARCHAR, unit: name, meaning: "Route, '' if not given."}
  template: {type: VARCHAR, unit: name, meaning: "Template, '' if not given."}
  tenant: {type: VARCHAR, unit: name, meaning: "Tenant, '' if not given."}
  scope: {type: VARCHAR, unit: name, meaning: "Keyed hash of the trust boundary, '' if there is none."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Every input token, cached or not."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "Reused prompt tokens; NULL if not reported."}
  cache_write_tokens: {type: BIGINT, unit: tokens, meaning: "Written to a billed cache; NULL if not reported."}
  output_tokens: {type: BIGINT, unit: tokens, meaning: "Generated tokens."}
  queue_seconds: {type: DOUBLE, unit: seconds, meaning: "Time in the queue."}
  ttft_seconds: {type: DOUBLE, unit: seconds, meaning: "Time to first token."}
  ttft_point: {type: VARCHAR, unit: name, meaning: "Where it was measured."}
  e2e_seconds: {type: DOUBLE, unit: seconds, meaning: "End to end."}
  ineligible_reason: {type: VARCHAR, unit: name, meaning: "Why no cache could serve it; '' if one could."}
  block_size: {type: INTEGER, unit: tokens, meaning: "Tokens per block, where the row says."}
  block_hashes: {type: "UBIGINT[]", unit: id, meaning: "Chain of the prompt, first block first; NULL if not known."}
  content_hashes: {type: "UBIGINT[]", unit: id, meaning: "The same blocks, each named by its own tokens only."}
  piece_hashes: {type: "UBIGINT[]", unit: id, meaning: "Pieces of the prompt cut where its content says so, each named by its own tokens."}
  piece_lengths: {type: "UTINYINT[]", unit: count, meaning: "Of each piece in tokens, or in bytes where text_bytes is set."}
  text_bytes: {type: BIGINT, unit: bytes, meaning: "Length of the text whose chunks of 64 bytes the hashes name (approximate); NULL where they name blocks of tokens."}
  hash_scope: {type: VARCHAR, unit: name, meaning: "Where the names mean the same: global, engine or trace."}
  hash_key_id: {type: VARCHAR, unit: id, meaning: "Key they were made with, '' if not by us; names of different keys are never compared."}
  batch: {type: BIGINT, unit: position, meaning: "Batch of lines that brought the row; rows came in the order of batch and position."}
  position: {type: BIGINT, unit: position, meaning: "Where its line stands in that input."}
*/
SELECT
    ts, arrived, trace_id, coalesce(session, '') AS session, coalesce(replica, '') AS replica,
    coalesce(provider, '') AS provider, coalesce(model, '') AS model,
    coalesce(model_fingerprint, '') AS model_fingerprint, coalesce(route, '') AS route,
    coalesce(template, '') AS template, coalesce(tenant, '') AS tenant,
    coalesce(scope, '') AS scope, prompt_tokens, cached_tokens, cache_write_tokens, output_tokens,
    queue_seconds, ttft_seconds, ttft_point, e2e_seconds,
    coalesce(ineligible_reason, '') AS ineligible_reason, block_size, block_hashes, content_hashes,
    piece_hashes, piece_lengths, text_bytes, coalesce(hash_scope, '') AS hash_scope,
    coalesce(hash_key_id, '') AS hash_key_id, batch, position
FROM requests
WHERE
    prompt_tokens > 0
    AND replica_role IS DISTINCT FROM 'decode'
    AND in_window(ts, getvariable('since'), getvariable('until'))
    AND matches(coalesce(model, ''), getvariable('model'));
