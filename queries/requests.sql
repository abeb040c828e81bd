/*
name: requests
question: Which single requests are behind a figure?
grain: one row per attempt, rows still hot, one page at a time
many_rows: true
params:
  limit: {type: BIGINT, default: 100, minimum: 0, meaning: "Rows on the page."}
  offset: {type: BIGINT, default: 0, minimum: 0, meaning: "Rows before the page."}
  order: {type: VARCHAR, default: ts, one_of: [ts, ttft_seconds, computed_tokens], meaning: "What comes first: the latest, slowest or most computed."}
filters: [since, until, model, replica, route, template, tenant]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "Start of the request, UTC."}
  arrived: {type: TIMESTAMP, unit: time, meaning: "When the row was received."}
  source: {type: VARCHAR, unit: name, meaning: "Configured stream name."}
  source_format: {type: VARCHAR, unit: name, meaning: "Format whose mapping read it."}
  request_id: {type: VARCHAR, unit: id, meaning: "Id to join by."}
  attempt: {type: INTEGER, unit: count, meaning: "1-based attempt."}
  session: {type: VARCHAR, unit: id, meaning: "Conversation."}
  turn: {type: INTEGER, unit: count, meaning: "1-based turn of the session."}
  trace_id: {type: VARCHAR, unit: id, meaning: "Distributed trace."}
  replica: {type: VARCHAR, unit: name, meaning: "Replica, '' if not given."}
  replica_role: {type: VARCHAR, unit: name, meaning: "unified, prefill or decode."}
  provider: {type: VARCHAR, unit: name, meaning: "Provider."}
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  model_fingerprint: {type: VARCHAR, unit: name, meaning: "Weight version."}
  route: {type: VARCHAR, unit: name, meaning: "Route, '' if not given."}
  template: {type: VARCHAR, unit: name, meaning: "Template, '' if not given."}
  template_version: {type: VARCHAR, unit: name, meaning: "Template version, '' if not given."}
  tenant: {type: VARCHAR, unit: name, meaning: "Tenant, '' if not given."}
  scope: {type: VARCHAR, unit: name, meaning: "Keyed hash of the trust boundary."}
  adapter: {type: VARCHAR, unit: name, meaning: "Adapter."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Every input token, cached or not."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "Reused prompt tokens; NULL if not reported."}
  cached_device: {type: BIGINT, unit: tokens, meaning: "From the device tier."}
  cached_host: {type: BIGINT, unit: tokens, meaning: "From the host tier."}
  cached_disk: {type: BIGINT, unit: tokens, meaning: "From the disk tier."}
  cached_remote: {type: BIGINT, unit: tokens, meaning: "From the remote tier."}
  computed_tokens: {type: BIGINT, unit: tokens, meaning: "prompt_tokens - cached_tokens; NULL if not reported."}
  output_tokens: {type: BIGINT, unit: tokens, meaning: "Generated tokens."}
  ttft_seconds: {type: DOUBLE, unit: seconds, meaning: "Time to first token."}
  ttft_point: {type: VARCHAR, unit: name, meaning: "Where it was measured."}
  queue_seconds: {type: DOUBLE, unit: seconds, meaning: "Time in the queue."}
  prefill_seconds: {type: DOUBLE, unit: seconds, meaning: "The engine's own prefill time."}
  e2e_seconds: {type: DOUBLE, unit: seconds, meaning: "End to end."}
  stream: {type: BOOLEAN, unit: flag, meaning: "Was it streamed?"}
  status: {type: VARCHAR, unit: name, meaning: "ok, error, cancelled or incomplete."}
  outcome: {type: VARCHAR, unit: name, meaning: "miss, partial, hit or unknown."}
  ineligible_reason: {type: VARCHAR, unit: name, meaning: "Why the cache could not serve it."}
  prompt_basis: {type: VARCHAR, unit: name, meaning: "How it was decided whether the prompt count includes cached tokens."}
  flags: {type: "VARCHAR[]", unit: name, meaning: "Data-quality flags."}
  total_rows: {type: BIGINT, unit: requests, meaning: "Rows that match, whatever the page."}
*/
WITH selected AS (
    SELECT
        *,
        CASE
            WHEN is_reported(prompt_tokens, cached_tokens, ineligible_reason)
                THEN prompt_tokens - cached_tokens
        END AS computed_tokens
    FROM requests
    WHERE
        in_window(ts, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(coalesce(replica, ''), getvariable('replica'))
        AND matches(coalesce(route, ''), getvariable('route'))
        AND matches(coalesce(template, ''), getvariable('template'))
        AND matches(coalesce(tenant, ''), getvariable('tenant'))
)

SELECT
    ts, arrived, source, source_format, request_id, attempt, session, turn, trace_id,
    coalesce(replica, '') AS replica, replica_role, provider, coalesce(model, '') AS model,
    model_fingerprint, coalesce(route, '') AS route, coalesce(template, '') AS template,
    coalesce(template_version, '') AS template_version, coalesce(tenant, '') AS tenant, scope,
    adapter, prompt_tokens, cached_tokens, cached_device, cached_host, cached_disk,
    cached_remote, computed_tokens, output_tokens, ttft_seconds, ttft_point, queue_seconds,
    prefill_seconds, e2e_seconds, stream, status, outcome, ineligible_reason, prompt_basis, flags,
    (SELECT count(*) FROM selected) AS total_rows
FROM selected
ORDER BY
    CASE coalesce(getvariable('order'), 'ts')
        WHEN 'ts' THEN NULL
        WHEN 'ttft_seconds' THEN ttft_seconds
        WHEN 'computed_tokens' THEN computed_tokens
        ELSE error('unknown order ' || getvariable('order'))
    END DESC NULLS LAST,
    selected.ts DESC, source, request_id, attempt
LIMIT coalesce(getvariable('limit'), 100) OFFSET coalesce(getvariable('offset'), 0);
