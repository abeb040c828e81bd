-- Reuse of KV that was not written under the same weights, adapter or engine start: macros of the
-- question stale_reuse. docs/offload.md says what can be proven and what cannot.

-- When replicas restarted, as pages and event streams tell: somewhere in (since, until].
CREATE OR REPLACE VIEW replica_starts AS
SELECT replica, list(since) AS sinces, list(until) AS untils
FROM (
    SELECT DISTINCT replica, coalesce(since, ts) AS since, ts AS until
    FROM engine_own WHERE reset
    UNION
    SELECT replica, ts, ts FROM block_resets WHERE reason = 'restart'
)
GROUP BY replica;

-- How many of these moments lie before; 0 where there are none.
CREATE OR REPLACE MACRO so_many_before(moments, moment) AS
    coalesce(len(list_filter(moments, lambda m: m <= moment)), 0);

-- Requests with a chain: who read its first block from cache, and who wrote it. Whoever reads the
-- first block read it of a prefix that was written with it, so that it stands for the chain.
-- Hashes are compared only where they mean the same: by key, and by scope of the hashes.
CREATE OR REPLACE VIEW chain_uses AS
SELECT
    r.* EXCLUDE (first_block),
    so_many_before(s.sinces, r.ts) AS written_in,
    so_many_before(s.untils, r.ts) AS read_in
FROM (
    SELECT
        ts, coalesce(replica, '') AS replica,
        coalesce(model, '') AS model, model_fingerprint, coalesce(adapter, '') AS adapter,
        block_hashes[1] AS first_block,
        hash(
            first_block, hash_key_id, hash_scope,
            CASE hash_scope WHEN 'engine' THEN replica WHEN 'trace' THEN source END
        ) AS chain,
        cached_tokens,
        -- A row that does not say may have written. Hashes without a block size name 16 tokens.
        coalesce(cached_tokens >= coalesce(block_size, 16), false) AS reads,
        CASE
            WHEN lower_tokens(cached_tokens, cached_device, cached_host, cached_disk, cached_remote)
                = 0 THEN 'device'
            ELSE deepest_tier(cached_host, cached_disk, cached_remote)
        END AS tier
    FROM requests
    WHERE block_hashes[1] IS NOT NULL AND replica_role IS DISTINCT FROM 'decode'
) AS r
LEFT JOIN replica_starts AS s ON s.replica = r.replica;

-- The same weights: by fingerprint where both are known, else by the name of the model.
CREATE OR REPLACE MACRO same_weights(model, fingerprint, other_model, other_fingerprint) AS
    coalesce(fingerprint = other_fingerprint, model = other_model);
CREATE OR REPLACE MACRO weights(model, fingerprint, adapter) AS
    coalesce(fingerprint, model) || CASE WHEN adapter <> '' THEN ' + ' || adapter ELSE '' END;

-- Every read in the window whose first block nobody is known to have written for it.
CREATE OR REPLACE MACRO stale_reads(
    since_border, until_border, wanted_model, wanted_replica
) AS TABLE
WITH uses AS MATERIALIZED (FROM chain_uses),

written AS (
    SELECT
        chain, model, model_fingerprint, adapter, replica, written_in,
        min(ts) AS first_ts
    FROM uses
    WHERE NOT reads
    GROUP BY ALL
),

fingerprints AS (
    SELECT model, adapter, model_fingerprint, min(ts) AS first_ts
    FROM uses
    WHERE model_fingerprint IS NOT NULL
    GROUP BY ALL
),

reads AS (
    SELECT
        *,
        hash(chain, model, model_fingerprint, adapter, replica, tier, read_in) AS reader
    FROM uses
    WHERE
        reads
        AND in_window(ts, since_border, until_border)
        AND matches(model, wanted_model)
        AND matches(replica, wanted_replica)
),

readers AS (
    SELECT reader, any_value(struct_pack(
        chain, model, model_fingerprint, adapter, replica, tier, read_in
    )) AS it
    FROM reads
    GROUP BY reader
),

-- From when on a reader finds what was written for it.
accounted AS (
    SELECT r.reader, min(w.first_ts) AS from_ts
    FROM (SELECT reader, unnest(it) FROM readers) AS r
    JOIN written AS w
        ON w.chain = r.chain AND w.adapter = r.adapter
        AND same_weights(w.model, w.model_fingerprint, r.model, r.model_fingerprint)
        AND (w.replica = r.replica OR r.tier IS DISTINCT FROM 'device')
        AND NOT (w.replica = r.replica AND w.written_in < r.read_in)
    GROUP BY r.reader
),

stale AS (
    SELECT row_number() OVER () AS id, r.*
    FROM reads AS r
    LEFT JOIN accounted AS a ON a.reader = r.reader
    WHERE a.from_ts IS NULL OR r.ts <= a.from_ts
),

-- Device memory is one replica's own; a lower tier may be shared.
origins AS (
    SELECT
        r.id,
        w.adapter = r.adapter AND same_weights(
            w.model, w.model_fingerprint, r.model, r.model_fingerprint
        ) AS own,
        w.adapter <> r.adapter AS other_adapter,
        coalesce(w.model_fingerprint <> r.model_fingerprint, false) AS other_fingerprint,
        weights(w.model, w.model_fingerprint, w.adapter) AS written_under,
        w.first_ts
    FROM stale AS r
    JOIN written AS w
        ON w.chain = r.chain AND w.first_ts < r.ts
        AND (r.tier IS DISTINCT FROM 'device' OR w.replica = r.replica)
),

found AS (
    SELECT
        id,
        bool_or(own) AS before_start,
        arg_max(written_under, first_ts) FILTER (NOT own) AS written_under,
        bool_or(other_fingerprint) FILTER (NOT own) AS other_fingerprint,
        bool_or(other_adapter) FILTER (NOT own) AS other_adapter
    FROM origins
    GROUP BY id
),

earlier AS (
    SELECT
        own.model, own.adapter, own.model_fingerprint,
        arg_max(old.model_fingerprint, old.first_ts) AS written_under
    FROM fingerprints AS own
    JOIN fingerprints AS old
        ON old.model = own.model AND old.adapter = own.adapter AND old.first_ts < own.first_ts
    GROUP BY ALL
)

SELECT
    r.ts, r.model, r.replica, coalesce(r.tier, 'unknown') AS tier, r.cached_tokens AS tokens,
    weights(r.model, r.model_fingerprint, r.adapter) AS read_under,
    CASE
        WHEN f.before_start THEN weights(r.model, r.model_fingerprint, r.adapter)
        ELSE coalesce(f.written_under, e.written_under)
    END AS written_under,
    CASE
        WHEN f.before_start THEN 'engine_start'
        WHEN f.other_fingerprint THEN 'model_fingerprint'
        WHEN f.other_adapter THEN 'adapter'
        WHEN f.written_under IS NOT NULL THEN 'model_name'
        WHEN e.written_under IS NOT NULL THEN 'unaccounted'
        ELSE 'before_log'
    END AS reason
FROM stale AS r
LEFT JOIN found AS f ON f.id = r.id
LEFT JOIN earlier AS e
    ON e.model = r.model AND e.adapter = r.adapter AND e.model_fingerprint = r.model_fingerprint;

-- Tokens a replica took from lower tiers after a restart, or after its model or version changed,
-- while nothing it wrote since can have been among them: all it computed and loaded since still
-- fits into device memory, so that nothing had to be evicted, or it wrote nothing at all. Under
-- the same model and version that is a persistent tier at work.
CREATE OR REPLACE MACRO stale_loads(
    since_border, until_border, wanted_model, wanted_replica
) AS TABLE
WITH pages AS (
    SELECT
        replica, ts, max(model) AS model, max(version) AS version, bool_or(reset) AS reset,
        greatest(sum(cached_host), sum(offload_tokens['load/host'])) AS host,
        greatest(sum(cached_disk), sum(offload_tokens['load/disk'])) AS disk,
        greatest(
            sum(coalesce(cached_remote, external_hit_tokens)), sum(offload_tokens['load/remote'])
        ) AS remote,
        sum(computed(prompt_tokens, cached_tokens)) AS computed_tokens,
        sum(output_tokens) AS output_tokens,
        max(kv_capacity_tokens) AS capacity_tokens,
        sum(coalesce(offloaded(offload_tokens, 'store'), offloaded(offload_bytes, 'store')))
            AS stored
    FROM engine_own
    WHERE role <> 'decode'
    GROUP BY replica, ts
),

changes AS (
    SELECT
        *,
        lag(model IGNORE NULLS) OVER past AS model_before,
        lag(version IGNORE NULLS) OVER past AS version_before,
        lag(ts) OVER past IS NOT NULL AND (
            reset OR coalesce(model <> model_before, false)
            OR coalesce(version <> version_before, false)
        ) AS starts
    FROM pages
    WINDOW past AS (PARTITION BY replica ORDER BY ts)
),

lives AS (
    SELECT *, sum(starts::INT) OVER (PARTITION BY replica ORDER BY ts) AS life FROM changes
),

so_far AS (
    SELECT
        *,
        first_value(model_before) OVER life_so_far AS old_model,
        first_value(version_before) OVER life_so_far AS old_version,
        max(capacity_tokens) OVER (PARTITION BY replica) AS room_tokens,
        sum(coalesce(computed_tokens, 0)) OVER life_so_far AS computed_so_far,
        sum(
            coalesce(computed_tokens, 0) + coalesce(output_tokens, 0) + coalesce(host, 0)
            + coalesce(disk, 0) + coalesce(remote, 0)
        ) OVER life_so_far AS held_tokens,
        sum(stored) OVER life_so_far AS stored_so_far
    FROM lives
    WINDOW life_so_far AS (PARTITION BY replica, life ORDER BY ts)
),

loads AS (
    SELECT
        *,
        unnest([
            {'tier': 'host', 'tokens': host}, {'tier': 'disk', 'tokens': disk},
            {'tier': 'remote', 'tokens': remote}
        ], recursive := true),
        (SELECT count(DISTINCT o.replica) FROM engine_own AS o
         WHERE o.replica <> so_far.replica AND o.model = so_far.model) AS others
    FROM so_far
    WHERE
        life > 0
        AND (held_tokens <= room_tokens OR stored_so_far = 0 OR computed_so_far = 0)
)

SELECT
    ts, coalesce(model, '') AS model, replica, tier, tokens,
    concat_ws(' ', model, version) AS read_under,
    concat_ws(' ', coalesce(old_model, model), coalesce(old_version, version)) AS written_under,
    CASE
        WHEN model = old_model AND coalesce(version = old_version, true) THEN 'engine_start'
        WHEN model = old_model THEN 'engine_version'
        ELSE 'model_name'
    END AS reason,
    -- Another replica of the model may have written into a tier that both can reach.
    others > 0 AND tier <> 'host' AS shared
FROM loads
WHERE
    tokens > 0
    AND in_window(ts, since_border, until_border)
    AND matches(coalesce(model, ''), wanted_model)
    AND matches(replica, wanted_replica);
