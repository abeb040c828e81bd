/*
name: resident_contents
question: For whom does the cache hold what it holds?
grain: one row per tier and value of `by` in the latest snapshot; beside the prefixes it names, one row `named` = false for all else that is resident
params:
  by: {type: VARCHAR, default: null, one_of: [template, tenant, model], meaning: "One row per value; one per tier if not set."}
filters: [model]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not known; NULL without by."}
  tier: {type: VARCHAR, unit: name, meaning: "Tier it is in."}
  named: {type: BOOLEAN, unit: flag, meaning: "False for what is resident and in no prefix of the snapshot, which keeps the largest."}
  prefixes: {type: BIGINT, unit: count, meaning: "Prefixes behind the row; NULL where not named."}
  tokens: {type: BIGINT, unit: tokens, meaning: "Resident tokens, copies on several replicas counted each."}
  bytes: {type: BIGINT, unit: bytes, meaning: "tokens x bytes per token; NULL where a model's KV geometry is not in the settings."}
  share_ratio: {type: DOUBLE, unit: ratio, meaning: "Of all resident tokens of the tier."}
  as_of: {type: TIMESTAMP, unit: time, meaning: "When the snapshot was taken."}
*/
WITH prefixes AS (
    SELECT
        *,
        CASE
            WHEN getvariable('by') IS NULL THEN NULL
            WHEN getvariable('by') = 'template' THEN coalesce(template, '')
            WHEN getvariable('by') = 'tenant' THEN coalesce(tenant, '')
            WHEN getvariable('by') = 'model' THEN named
            ELSE error('unknown dimension ' || getvariable('by'))
        END AS value
    FROM held_prefixes
    WHERE matches(named, getvariable('model'))
),

rest AS (
    SELECT
        CASE
            WHEN getvariable('by') = 'model' THEN t.model
            WHEN getvariable('by') IS NOT NULL THEN ''
        END AS value,
        t.tier, t.resident_tokens - coalesce(p.tokens, 0) AS tokens,
        (t.resident_tokens - coalesce(p.tokens, 0)) * g.bytes_per_token AS bytes
    FROM resident_totals AS t
    LEFT JOIN (
        SELECT named, tier, sum(tokens) AS tokens FROM prefixes GROUP BY ALL
    ) AS p ON p.named = t.model AND p.tier = t.tier
    LEFT JOIN kv_geometry AS g ON g.model = t.model
    WHERE matches(t.model, getvariable('model'))
),

parts AS (
    SELECT value, tier, true AS named, 1 AS prefixes, tokens, bytes FROM prefixes
    UNION ALL
    SELECT value, tier, false, NULL, tokens, bytes FROM rest WHERE tokens > 0
)

SELECT
    value, tier, named,
    sum(prefixes)::BIGINT AS prefixes,
    sum(tokens)::BIGINT AS tokens,
    sum_of_all(bytes) AS bytes,
    ratio(sum(tokens), sum(sum(tokens)) OVER (PARTITION BY tier)) AS share_ratio,
    (SELECT max(as_of) FROM resident_prefixes) AS as_of
FROM parts
GROUP BY value, tier, named
ORDER BY tier, named DESC, tokens DESC, value;
