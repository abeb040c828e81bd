/*
name: block_copies
question: How many copies of the same block does the fleet hold, and which replicas hold the same?
grain: one row per model and tier for the fleet (replicas NULL), and one per pair of replicas; the latest minute of each in the window
params:
  replica: {type: VARCHAR, default: null, meaning: "Only pairs with this replica, and the fleet's row."}
filters: [since, until, model]
columns:
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given. Blocks of different models are never the same."}
  tier: {type: VARCHAR, unit: name, meaning: "Tier the blocks are in."}
  replica_a: {type: VARCHAR, unit: name, meaning: "One replica of the pair; NULL in the fleet's row."}
  replica_b: {type: VARCHAR, unit: name, meaning: "The other."}
  unique_blocks: {type: BIGINT, unit: blocks, meaning: "Different blocks resident in any of them, by keyed hash of their content and all before it."}
  resident_blocks: {type: BIGINT, unit: blocks, meaning: "Blocks resident in all of them together."}
  copies_ratio: {type: DOUBLE, unit: copies per block, meaning: "resident_blocks / unique_blocks: 1 = every block is in one place only."}
  shared_blocks: {type: BIGINT, unit: blocks, meaning: "Blocks both replicas of the pair hold; NULL in the fleet's row."}
  overlap_ratio: {type: DOUBLE, unit: ratio, meaning: "shared_blocks / unique_blocks of the pair."}
  extra_tokens: {type: BIGINT, unit: tokens, meaning: "(resident_blocks - unique_blocks) x block size: tokens held more than once."}
  extra_bytes: {type: BIGINT, unit: bytes, meaning: "extra_tokens x bytes per token; NULL where the model's KV geometry is not in the settings."}
  as_of: {type: TIMESTAMP, unit: time, meaning: "Minute of the count."}
*/
WITH sizes AS (
    -- The block size of a model whose caches agree on it.
    SELECT model, CASE WHEN count(DISTINCT block_size) = 1 THEN any_value(block_size) END
        AS block_size
    FROM told_caches
    GROUP BY model
),

counted AS (
    SELECT *, coalesce(model, sole) AS named
    FROM block_copies CROSS JOIN sole_model
    WHERE
        in_window(minute, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, sole), getvariable('model'))
        AND (
            replica_b IS NULL OR getvariable('replica') IS NULL
            OR getvariable('replica') IN (replica_a, replica_b)
        )
    QUALIFY minute = max(minute) OVER (PARTITION BY coalesce(model, sole), tier)
)

SELECT
    named AS model, tier,
    CASE WHEN replica_b IS NOT NULL THEN replica_a END AS replica_a,
    replica_b,
    unique_blocks, resident_blocks,
    ratio(resident_blocks, unique_blocks) AS copies_ratio,
    CASE WHEN replica_b IS NOT NULL THEN shared_blocks END AS shared_blocks,
    CASE WHEN replica_b IS NOT NULL THEN ratio(shared_blocks, unique_blocks) END AS overlap_ratio,
    (resident_blocks - unique_blocks) * sizes.block_size AS extra_tokens,
    (resident_blocks - unique_blocks) * sizes.block_size * g.bytes_per_token AS extra_bytes,
    minute AS as_of
FROM counted
LEFT JOIN sizes ON sizes.model = named
LEFT JOIN kv_geometry AS g ON g.model = named
-- A model of which nothing is resident any more has a last row of zeros.
WHERE resident_blocks > 0
ORDER BY named, tier, replica_b IS NOT NULL, shared_blocks DESC NULLS LAST, replica_a, replica_b;
