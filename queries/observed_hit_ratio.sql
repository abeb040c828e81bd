/*
name: observed_hit_ratio
question: What did KV stores, routers and gateways count themselves?
grain: one row per value of `by` (if set), program, unit and denominator; they count the same prompts as the engines, so that nothing here is added to an engine's figure
params:
  by: {type: VARCHAR, default: null, one_of: [target, replica, model, tenant, route], meaning: "One row more per value; if not set, one per program, unit and denominator."}
  observer: {type: VARCHAR, default: null, one_of: [kv_store, router, gateway], meaning: "Only this kind of program."}
filters: [since, until, model]
columns:
  value: {type: VARCHAR, unit: name, meaning: "Value of the dimension, '' if not given; NULL without by."}
  observer: {type: VARCHAR, unit: name, meaning: "kv_store, router or gateway."}
  engine: {type: VARCHAR, unit: name, meaning: "The program that counted."}
  unit: {type: VARCHAR, unit: name, meaning: "What is counted: tokens, objects, requests or blocks. Units are never added to each other."}
  denominator: {type: VARCHAR, unit: text, meaning: "Where `asked` comes from; NULL where nothing tells it."}
  asked: {type: BIGINT, unit: count, meaning: "Denominator, in the unit of the row, as far as hits are known for it; NULL where unknown."}
  hits: {type: BIGINT, unit: count, meaning: "Found or reused, in the unit of the row."}
  hit_ratio: {type: DOUBLE, unit: ratio, meaning: "hits / asked; NULL without a denominator."}
  unreported: {type: BIGINT, unit: count, meaning: "Asked for as well, but nothing tells the hits: unknown, not 0, and not in `asked`."}
  skipped: {type: BIGINT, unit: count, meaning: "Not looked up at all, although a look-up was wanted; NULL where not told."}
  stored_tokens: {type: BIGINT, unit: tokens, meaning: "Written to a lower tier: no reuse; NULL where not told."}
  loaded_tokens: {type: BIGINT, unit: tokens, meaning: "Brought back from a lower tier; NULL where not told."}
  provenance: {type: VARCHAR, unit: text, meaning: "When the counters are credited, how often, in what unit."}
  caution: {type: VARCHAR, unit: text, meaning: "What to know before using the row; NULL if nothing."}
*/
WITH samples AS (
    SELECT
        *,
        overlap_share(since, ts, getvariable('since'), getvariable('until')) AS share,
        coalesce(provenance LIKE 'finish/%', prompt_tokens IS NOT NULL) AS by_prompt
    FROM engine_samples
    WHERE
        role <> 'decode'
        AND reaches_into(since, ts, getvariable('since'), getvariable('until'))
),

counted AS (
    SELECT
        *,
        'tokens' AS unit,
        CASE
            WHEN by_prompt THEN CASE WHEN prompt_tokens IS NOT NULL THEN 'own prompt tokens' END
            WHEN lookup_tokens IS NOT NULL THEN 'own look-ups'
        END AS own_denominator,
        CASE WHEN by_prompt THEN prompt_tokens ELSE lookup_tokens END AS own_asked,
        CASE WHEN by_prompt THEN cached_tokens ELSE coalesce(lookup_hit_tokens, cached_tokens) END
            AS own_hits,
        NULL::BIGINT AS own_skipped
    FROM samples
    WHERE coalesce(lookup_tokens, lookup_hit_tokens, cached_tokens) IS NOT NULL
        OR (by_prompt AND prompt_tokens IS NOT NULL)
        OR offload_tokens IS NOT NULL
    UNION ALL BY NAME
    SELECT
        * REPLACE (NULL AS offload_tokens),
        count_unit AS unit,
        CASE WHEN lookup_count IS NOT NULL THEN 'own look-ups' END AS own_denominator,
        lookup_count AS own_asked,
        hit_count AS own_hits,
        skipped_count AS own_skipped
    FROM samples
    WHERE coalesce(lookup_count, hit_count, skipped_count) IS NOT NULL
),

cells AS (
    SELECT
        CASE
            WHEN getvariable('by') IS NULL THEN NULL
            WHEN getvariable('by') = 'target' THEN target
            WHEN getvariable('by') = 'replica' THEN replica
            WHEN getvariable('by') = 'model' THEN coalesce(model, '')
            WHEN getvariable('by') = 'tenant' THEN coalesce(tenant, '')
            WHEN getvariable('by') = 'route' THEN coalesce(route, '')
            ELSE error('unknown dimension ' || getvariable('by'))
        END AS value,
        observer, engine, unit, provenance, own_denominator, target,
        coalesce(model, '') AS model,
        tenant IS NULL AND route IS NULL AS whole,
        known_total(CASE WHEN own_hits IS NOT NULL THEN own_asked * share END) AS own_asked,
        known_total(own_hits * share) AS hits,
        known_total(CASE WHEN own_hits IS NULL THEN own_asked * share END) AS unreported,
        known_total(own_skipped * share) AS skipped,
        known_total(share * offloaded(offload_tokens, 'store')) AS stored_tokens,
        known_total(share * offloaded(offload_tokens, 'load')) AS loaded_tokens
    FROM counted
    WHERE
        observer <> 'engine'
        AND matches(observer, getvariable('observer'))
        AND matches(coalesce(model, ''), getvariable('model'))
    GROUP BY ALL
),

-- What the engine on the same page counted: a denominator for those that count hits alone.
engine_prompts AS (
    SELECT target, coalesce(model, '') AS model, known_total(prompt_tokens * share) AS prompt_tokens
    FROM samples
    WHERE observer = 'engine'
    GROUP BY ALL
),

paired AS (
    SELECT
        cells.*,
        CASE
            WHEN own_denominator IS NULL AND whole AND unit = 'tokens' AND hits IS NOT NULL THEN (
                SELECT sum(prompt_tokens) FROM engine_prompts
                WHERE
                    engine_prompts.target = cells.target
                    AND (cells.model = '' OR engine_prompts.model = cells.model)
            )
        END AS engine_asked
    FROM cells
),

sums AS (
    SELECT
        value, observer, engine, unit,
        coalesce(
            own_denominator,
            CASE WHEN engine_asked > 0 THEN 'prompt tokens of the engine on the same page' END
        ) AS denominator,
        sum(coalesce(own_asked, engine_asked))::BIGINT AS asked,
        sum(hits)::BIGINT AS hits,
        total(unreported) AS unreported,
        sum(skipped)::BIGINT AS skipped,
        sum(stored_tokens)::BIGINT AS stored_tokens,
        sum(loaded_tokens)::BIGINT AS loaded_tokens,
        string_agg(DISTINCT provenance, ', ' ORDER BY provenance) AS provenance
    FROM paired
    GROUP BY ALL
)

SELECT
    value, observer, engine, unit, denominator, asked, hits,
    CASE WHEN denominator IS NOT NULL THEN counter_ratio(hits, asked) END AS hit_ratio,
    unreported, skipped,
    stored_tokens, loaded_tokens, provenance,
    nullif(concat_ws(
        '; ',
        CASE WHEN unit <> 'tokens' THEN 'counts ' || unit || ', not tokens' END,
        CASE WHEN hits IS NOT NULL AND denominator IS NULL
            THEN 'an amount: nothing tells of how many' END,
        CASE WHEN unreported > 0 THEN 'hits not reported for ' || unreported || ' ' || unit END,
        CASE WHEN skipped > 0 THEN skipped || ' ' || unit || ' could not be looked up' END,
        CASE WHEN hits > asked THEN 'hits exceed what was asked by ' || (hits - asked) END
    ), '') AS caution
FROM sums
ORDER BY observer, engine, value, unit, denominator;
