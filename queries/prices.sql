/*
name: prices
question: What does each model cost, by which table, and which models have no known price?
grain: one row per provider and model among the rows kept; most prompt tokens first
filters: [since, until]
columns:
  provider: {type: VARCHAR, unit: name, meaning: "Provider, '' if rows name none."}
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  requests: {type: BIGINT, unit: requests, meaning: "Rows; decode replicas left out."}
  prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Every input token of them."}
  input_usd_per_million: {type: DOUBLE, unit: USD per million tokens, meaning: "Plain input; NULL where no table knows the model."}
  cached_read_usd_per_million: {type: DOUBLE, unit: USD per million tokens, meaning: "Cached tokens; NULL where not known."}
  write_5m_usd_per_million: {type: DOUBLE, unit: USD per million tokens, meaning: "Writes kept for 5 minutes, or without a lifetime."}
  write_1h_usd_per_million: {type: DOUBLE, unit: USD per million tokens, meaning: "Writes kept for an hour."}
  write_other_usd_per_million: {type: DOUBLE, unit: USD per million tokens, meaning: "Writes kept for any other time."}
  output_usd_per_million: {type: DOUBLE, unit: USD per million tokens, meaning: "Generated tokens."}
  source: {type: VARCHAR, unit: text, meaning: "The table the price is from; NULL where there is none."}
  as_of: {type: TIMESTAMP, unit: UTC, meaning: "When that table was true."}
  matched_name: {type: VARCHAR, unit: name, meaning: "Under which name the model was found there."}
  note: {type: VARCHAR, unit: text, meaning: "What the prices do not say."}
*/
SELECT
    costs.provider, costs.model,
    total(requests) AS requests,
    total(prompt_tokens) AS prompt_tokens,
    any_value(input) AS input_usd_per_million,
    any_value(cached_read) AS cached_read_usd_per_million,
    any_value(write_5m) AS write_5m_usd_per_million,
    any_value(write_1h) AS write_1h_usd_per_million,
    any_value(write_other) AS write_other_usd_per_million,
    any_value(output) AS output_usd_per_million,
    any_value(source) AS source,
    any_value(as_of) AS as_of,
    any_value(matched_name) AS matched_name,
    any_value(note) AS note
FROM request_costs AS costs
LEFT JOIN model_prices AS listed
    ON listed.model = costs.model AND coalesce(listed.provider, '') = costs.provider
WHERE kept_as = 'row' AND in_window(ts, getvariable('since'), getvariable('until'))
GROUP BY costs.provider, costs.model
ORDER BY prompt_tokens DESC, costs.provider, costs.model;
