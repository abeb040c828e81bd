/*
name: template_ranges
question: Which parts of each template's prompts are shared, by what share of its requests?
grain: one row per range of tokens of a template, from token 0 on; of the sample that `layout` looked at
params:
  template: {type: VARCHAR, default: null, meaning: "Only this template; '' is \"not given\"."}
filters: [model]
columns:
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  template: {type: VARCHAR, unit: name, meaning: "Template, given or found; '' if there is none."}
  from_token: {type: BIGINT, unit: tokens, meaning: "First token of the range."}
  until_token: {type: BIGINT, unit: tokens, meaning: "First token behind it."}
  requests: {type: BIGINT, unit: requests, meaning: "Requests long enough to have it."}
  template_requests: {type: BIGINT, unit: requests, meaning: "Requests of the template that were looked at."}
  same_ratio: {type: DOUBLE, unit: ratio, meaning: "Of template_requests: those with the most frequent beginning up to here, whatever their scope."}
  reuse_ratio: {type: DOUBLE, unit: ratio, meaning: "Of template_requests: those whose beginning up to here another request has too."}
  content_ratio: {type: DOUBLE, unit: ratio, meaning: "Of template_requests: those whose blocks here another request holds at any place."}
  as_of: {type: TIMESTAMP, unit: time, meaning: "End of the time that was looked at."}
*/
SELECT
    coalesce(model, '') AS model, coalesce(template, '') AS template,
    from_token, until_token, requests, template_requests,
    ratio(same_requests, template_requests) AS same_ratio,
    ratio(reuse_requests, template_requests) AS reuse_ratio,
    ratio(content_requests, template_requests) AS content_ratio,
    window_until AS as_of
FROM template_ranges
WHERE
    matches(coalesce(model, ''), getvariable('model'))
    AND matches(coalesce(template, ''), getvariable('template'))
ORDER BY model, template, template_requests DESC, from_token;
