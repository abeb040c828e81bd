/*
name: layout
question: What in the layout of prompts keeps them from being reused, told from hashes of a sample of the last day?
grain: one row per finding, what a fix would win most first; looked for every hour by the exporter
params:
  template: {type: VARCHAR, default: null, meaning: "Only this template; '' is \"not given\"."}
  limit: {type: BIGINT, default: 200, minimum: 1, meaning: "At most this many rows."}
filters: [model]
columns:
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  template: {type: VARCHAR, unit: name, meaning: "Template, given or found; '' if there is none: requests put together by what they hold."}
  from_token: {type: BIGINT, unit: tokens, meaning: "The block within which prompts part begins here, from token 0 of the prompt."}
  until_token: {type: BIGINT, unit: tokens, meaning: "First token behind the place."}
  segment: {type: VARCHAR, unit: name, meaning: "Part of the prompt where its structure is known: '' here, as hashes tell none."}
  kind: {type: VARCHAR, unit: name, meaning: "tool_order, template_version, thinking_removed, tokenizer_join or unknown (a value hashes cannot tell: run lint); or why the layout is not to blame: below_minimum, short_prefix, key_lineage, routing_key, no_local_cause."}
  frequency: {type: VARCHAR, unit: name, meaning: "once, or always: what changes with every request, session, user or day. '' where the layout is not to blame."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests that have it, of those looked at."}
  template_requests: {type: BIGINT, unit: requests, meaning: "Requests of the template that were looked at."}
  share_ratio: {type: DOUBLE, unit: ratio, meaning: "requests / template_requests."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens of the requests looked at."}
  lost_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens behind the place that came before and could not be reused; of what changed once, those that all replicas had to compute anew."}
  gain_tokens: {type: BIGINT, unit: tokens, meaning: "Tokens these requests would reuse more without it, by replay in a cache that never loses a block: an estimate, at best. 0 where nothing is to be won."}
  gain_ratio: {type: DOUBLE, unit: ratio, meaning: "gain_tokens / prompt_tokens."}
  since: {type: TIMESTAMP, unit: time, meaning: "When the newest version or value was first seen; NULL where that is no matter of time."}
  warm_again_by: {type: TIMESTAMP, unit: time, meaning: "When every replica that served it before had computed the new version; NULL where it did not change once."}
  advice: {type: VARCHAR, unit: text, meaning: "The finding in words, and what to do."}
  command: {type: VARCHAR, unit: text, meaning: "What shows the text, for a log that holds it."}
  window_since: {type: TIMESTAMP, unit: time, meaning: "Start of the time that was looked at."}
  as_of: {type: TIMESTAMP, unit: time, meaning: "Its end."}
*/
SELECT
    coalesce(model, '') AS model, coalesce(template, '') AS template,
    from_token, until_token, segment, kind, frequency,
    requests, template_requests, ratio(requests, template_requests) AS share_ratio,
    prompt_tokens, lost_tokens, gain_tokens, ratio(gain_tokens, prompt_tokens) AS gain_ratio,
    since, warm_again_by, advice, command, window_since, window_until AS as_of
FROM layout_findings
WHERE
    matches(coalesce(model, ''), getvariable('model'))
    AND matches(coalesce(template, ''), getvariable('template'))
ORDER BY gain_tokens DESC, lost_tokens DESC, model, template, from_token, kind
LIMIT coalesce(getvariable('limit'), 200);
