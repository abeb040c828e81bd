-- What the questions about blocks share: what KV-cache events told (block_minutes), beside what
-- engines count themselves.

-- When what a row says was so: when it was heard, but of events heard long after (a replay) the
-- end of their minute.
CREATE OR REPLACE MACRO so_at(minute, heard) AS least(heard, minute + INTERVAL 1 MINUTE);

-- What each cache held after each row of events. A row stands until the next one.
CREATE OR REPLACE VIEW residency AS
SELECT
    replica, tier, so_at(minute, heard) AS stood_at,
    arg_max(source, heard) AS source,
    arg_max(block_size, heard) AS block_size,
    arg_max(resident_blocks, heard) AS resident_blocks,
    arg_max(resident_tokens, heard) AS resident_tokens,
    arg_max(struct_pack(reason := uncertain), heard).reason AS uncertain
FROM block_minutes
WHERE resident_blocks IS NOT NULL
GROUP BY ALL;

-- Caches of which events tell, and over which span: a stream that is connected tells until the
-- newest moment in the store, another until its last event.
CREATE OR REPLACE VIEW told_caches AS
WITH newest AS (
    SELECT greatest(
        (SELECT max(heard) FROM block_minutes),
        (SELECT max(last_heard) FROM block_streams),
        (SELECT max(ts) FROM engine_own)
    ) AS moment
),

known_models AS (
    SELECT replica, arg_max_null(model, ts) AS model FROM engine_own GROUP BY replica
)

SELECT
    b.replica, b.tier,
    coalesce(arg_max_null(b.model, b.heard), any_value(k.model), '') AS model,
    arg_max_null(b.block_size, b.heard) AS block_size,
    -- Minutes of a stream that began in its first minute count from there on.
    CASE
        WHEN min(s.first_heard) < min(b.minute) + INTERVAL 1 MINUTE
            THEN greatest(min(b.minute), min(s.first_heard))
        ELSE min(b.minute)
    END AS told_from,
    CASE
        WHEN bool_or(coalesce(s.connected, false)) THEN any_value(newest.moment)
        ELSE max(so_at(b.minute, b.heard))
    END AS told_until
FROM block_minutes AS b
LEFT JOIN block_streams AS s ON
    s.source = b.source AND s.replica = b.replica AND s.model IS NOT DISTINCT FROM b.model
LEFT JOIN known_models AS k ON k.replica = b.replica
CROSS JOIN newest
GROUP BY b.replica, b.tier;

-- The model of a replica that events tell of; they rarely name it themselves.
CREATE OR REPLACE VIEW told_models AS
SELECT replica, max(model) AS told_model FROM told_caches GROUP BY replica;

-- Tokens a tier of a replica holds, as its page said last.
CREATE OR REPLACE VIEW tier_capacities AS
SELECT replica, 'device' AS tier, arg_max_null(kv_capacity_tokens, ts) AS capacity_tokens
FROM engine_samples GROUP BY replica
UNION ALL
SELECT replica, split_part(entry.key, '/', 1), arg_max_null(entry.value, ts)
FROM (
    SELECT replica, ts, unnest(map_entries(tier_capacity)) AS entry
    FROM engine_samples WHERE tier_capacity IS NOT NULL
)
WHERE entry.key LIKE '%/tokens' AND entry.key NOT LIKE 'device/%'
GROUP BY ALL;

-- Seconds of a span that lie in the window and in the step.
CREATE OR REPLACE MACRO seconds_within(
    first_moment, last_moment, since_border, until_border, step_start, step_seconds
) AS greatest(0, epoch(
    least(
        last_moment, coalesce(until_border, last_moment),
        coalesce(step_start + to_seconds(step_seconds), last_moment)
    ) - greatest(
        first_moment, coalesce(since_border, first_moment), coalesce(step_start, first_moment)
    )
));

-- Blocks that came and went by events, per step and cache. A step in which a cache was told of and
-- nothing happened is 0, one in which it was not told of has no row.
CREATE OR REPLACE MACRO told_turnover(
    since_border, until_border, step_seconds, wanted_model, wanted_replica
) AS TABLE
WITH steps AS (
    SELECT
        *,
        unnest(steps_of(told_from, told_until, since_border, until_border, step_seconds))
            AS step_start
    FROM told_caches
    WHERE
        told_until >= coalesce(since_border, told_until)
        AND told_from < coalesce(until_border, told_from + INTERVAL 1 SECOND)
        AND matches(model, wanted_model)
        AND matches(replica, wanted_replica)
),

counted AS (
    SELECT
        CASE WHEN step_seconds IS NOT NULL THEN time_bucket(to_seconds(step_seconds), minute) END
            AS step_start,
        replica, tier,
        total(stored_blocks) AS stored_blocks, total(evicted_blocks) AS evicted_blocks,
        total(demoted_blocks) AS demoted_blocks, total(promoted_blocks) AS promoted_blocks,
        total(reset_blocks) AS reset_blocks,
        total(never_reused_blocks) AS never_reused_blocks,
        total(reuse_known_blocks) AS reuse_known_blocks,
        max(uncertain) AS uncertain
    FROM block_minutes
    WHERE in_window(minute, since_border, until_border)
    GROUP BY ALL
)

SELECT
    s.step_start, 'events' AS basis, 'engine' AS observer, s.replica, s.model, s.tier,
    s.block_size,
    coalesce(c.stored_blocks, 0) AS stored_blocks,
    coalesce(c.evicted_blocks, 0)::DOUBLE AS evicted_blocks,
    coalesce(c.demoted_blocks, 0)::DOUBLE AS demoted_blocks,
    coalesce(c.promoted_blocks, 0) AS promoted_blocks,
    coalesce(c.reset_blocks, 0) AS reset_blocks,
    coalesce(c.evicted_blocks, 0)::DOUBLE * s.block_size AS evicted_tokens,
    coalesce(c.demoted_blocks, 0)::DOUBLE * s.block_size AS demoted_tokens,
    coalesce(c.never_reused_blocks, 0) AS never_reused_blocks,
    coalesce(c.reuse_known_blocks, 0) AS reuse_known_blocks,
    NULL::MAP(VARCHAR, BIGINT) AS other_units,
    seconds_within(
        s.told_from, s.told_until, since_border, until_border, s.step_start, step_seconds
    ) AS told_seconds,
    c.uncertain
FROM steps AS s
LEFT JOIN counted AS c ON
    c.replica = s.replica AND c.tier = s.tier
    AND c.step_start IS NOT DISTINCT FROM s.step_start
WHERE c.replica IS NOT NULL OR told_seconds > 0;

-- The same by the counters on pages. While events tell of a cache, its counters are left out: one
-- fact from two sources is never added.
CREATE OR REPLACE MACRO counted_turnover(
    since_border, until_border, step_seconds, wanted_model, wanted_replica
) AS TABLE
WITH entries AS (
    SELECT *, split_part(entry.key, '/', 1) AS tier
    FROM (
        SELECT *, 'evicted' AS kind, unnest(map_entries(evicted)) AS entry
        FROM engine_samples WHERE evicted IS NOT NULL
    )
    UNION ALL
    -- Their key names the tier they moved to; they left the one above.
    SELECT *, CASE WHEN starts_with(entry.key, 'host/') THEN 'device' ELSE 'host' END AS tier
    FROM (
        SELECT *, 'demoted' AS kind, unnest(map_entries(demoted)) AS entry
        FROM engine_samples WHERE demoted IS NOT NULL
    )
),

-- What is left of the window for the counters: before events tell of the cache, and after.
clipped AS (
    SELECT
        e.*,
        unnest(
            CASE
                WHEN e.observer = 'engine' AND c.told_from IS NOT NULL THEN [
                    {'from_moment': since_border,
                        'until_moment': least(coalesce(until_border, c.told_from), c.told_from)},
                    {'from_moment': greatest(coalesce(since_border, c.told_until), c.told_until),
                        'until_moment': until_border}
                ]
                ELSE [{'from_moment': since_border, 'until_moment': until_border}]
            END,
            recursive := true
        )
    FROM entries AS e
    LEFT JOIN told_caches AS c ON c.replica = e.replica AND c.tier = e.tier
    WHERE
        matches(coalesce(e.model, ''), wanted_model) AND matches(e.replica, wanted_replica)
),

stepped AS (
    SELECT
        *,
        unnest(steps_of(coalesce(since, ts), ts, from_moment, until_moment, step_seconds))
            AS step_start
    FROM clipped
    WHERE reaches_into(since, ts, from_moment, until_moment)
),

shares AS (
    SELECT
        *,
        step_share(since, ts, from_moment, until_moment, step_start, step_seconds) AS share,
        split_part(entry.key, '/', 2) AS unit,
        CASE
            WHEN unit = 'blocks' THEN entry.value
            WHEN unit = 'tokens' THEN entry.value / block_size
        END AS blocks,
        CASE
            WHEN unit = 'tokens' THEN entry.value
            WHEN unit = 'blocks' THEN entry.value * block_size
        END AS tokens
    FROM stepped
)

SELECT
    step_start, 'engine counters' AS basis, observer, replica, coalesce(model, '') AS model, tier,
    max(block_size) AS block_size,
    NULL::BIGINT AS stored_blocks,
    sum(blocks * share) FILTER (kind = 'evicted') AS evicted_blocks,
    sum(blocks * share) FILTER (kind = 'demoted') AS demoted_blocks,
    NULL::BIGINT AS promoted_blocks,
    NULL::BIGINT AS reset_blocks,
    sum(tokens * share) FILTER (kind = 'evicted') AS evicted_tokens,
    sum(tokens * share) FILTER (kind = 'demoted') AS demoted_tokens,
    NULL::BIGINT AS never_reused_blocks,
    NULL::BIGINT AS reuse_known_blocks,
    sum_entries(list({'key': unit, 'value': entry.value * share})
        FILTER (kind = 'evicted' AND unit NOT IN ('blocks', 'tokens'))) AS other_units,
    sum(epoch(ts - since) * share) FILTER (kind = 'evicted') AS told_seconds,
    NULL::VARCHAR AS uncertain
FROM shares
WHERE share > 0
GROUP BY ALL;

-- Both bases, with what the tier holds. They stand apart by `basis` and are never added up.
CREATE OR REPLACE MACRO block_turnover(
    since_border, until_border, step_seconds, wanted_model, wanted_replica
) AS TABLE
WITH cells AS (
    FROM told_turnover(since_border, until_border, step_seconds, wanted_model, wanted_replica)
    UNION ALL BY NAME
    FROM counted_turnover(since_border, until_border, step_seconds, wanted_model, wanted_replica)
)

SELECT
    c.*, p.capacity_tokens,
    coalesce(evicted_tokens, 0) + coalesce(demoted_tokens, 0) AS left_tokens,
    p.capacity_tokens * told_seconds / 60 AS capacity_token_minutes
FROM cells AS c
LEFT JOIN tier_capacities AS p ON p.replica = c.replica AND p.tier = c.tier;

-- Share of the capacity that left per minute. It is known only where every part is: the tokens and
-- the capacity of each replica of the row.
CREATE OR REPLACE MACRO turnover_ratio(left_tokens, capacity_token_minutes, known) AS
    CASE WHEN bool_and(known) THEN ratio(sum(left_tokens), sum(capacity_token_minutes)) END;

-- A sum that is known only where every part is.
CREATE OR REPLACE MACRO sum_of_all(counts) AS
    CASE WHEN count(counts) = count(*) THEN sum(counts) END::BIGINT;

-- Why a figure from events may be wrong, each reason once; NULL = it is right.
CREATE OR REPLACE MACRO reasons(uncertain) AS
    nullif(string_agg(DISTINCT uncertain, '; ' ORDER BY uncertain), '');

-- The dimension of a question about caches.
CREATE OR REPLACE MACRO cache_dimension(dimension, model, replica) AS CASE
    WHEN dimension IS NULL THEN NULL
    WHEN dimension = 'model' THEN model
    WHEN dimension = 'replica' THEN replica
    ELSE error('unknown dimension ' || dimension)
END;

-- The step asked for, else one that suits the window, or all that events and samples tell.
CREATE OR REPLACE MACRO block_step(step_seconds, since_border, until_border) AS coalesce(
    step_seconds,
    (
        SELECT step_for(epoch(
            coalesce(until_border, last_moment) - coalesce(since_border, first_moment)
        ))
        FROM (
            SELECT
                least(
                    (SELECT min(minute) FROM block_minutes),
                    (SELECT min(coalesce(since, ts)) FROM engine_samples)
                ) AS first_moment,
                greatest(
                    (SELECT max(heard) FROM block_minutes), (SELECT max(ts) FROM engine_samples)
                ) AS last_moment
        )
    ),
    60
);

-- Ages of blocks as maps of the samples on pages: one row per sample and kind.
CREATE OR REPLACE MACRO sampled_ages(
    since_border, until_border, wanted_model, wanted_replica
) AS TABLE
WITH kinds AS (
    SELECT
        *,
        overlap_share(since, ts, since_border, until_border) AS share,
        unnest([
            {'kind': 'lifetime', 'seconds': block_lifetime_sum_seconds,
                'buckets': block_lifetime_buckets},
            {'kind': 'idle', 'seconds': block_idle_sum_seconds, 'buckets': block_idle_buckets},
            {'kind': 'reuse_gap', 'seconds': block_reuse_gap_sum_seconds,
                'buckets': block_reuse_gap_buckets}
        ]) AS age
    FROM engine_samples
    WHERE
        reaches_into(since, ts, since_border, until_border)
        AND matches(coalesce(model, ''), wanted_model)
        AND matches(replica, wanted_replica)
)

SELECT
    observer, replica, coalesce(model, '') AS model, engine, version, share,
    age.kind AS kind, age.seconds AS seconds, age.buckets AS buckets
FROM kinds
WHERE age.buckets IS NOT NULL;

-- Blocks per bucket of age, from events (bounds grow by 8 %) and from samples on pages (their own
-- bounds; the last bucket is open). Bases are never to be added up.
CREATE OR REPLACE MACRO age_buckets(
    since_border, until_border, wanted_model, wanted_replica
) AS TABLE
WITH kinds AS (
    SELECT
        b.replica, t.model,
        unnest([
            {'kind': 'lifetime', 'buckets': lifetime}, {'kind': 'idle', 'buckets': idle},
            {'kind': 'reuse_gap', 'buckets': reuse_gap},
            {'kind': 'evicted_reuse_gap', 'buckets': evicted_reuse_gap}
        ]) AS age
    FROM block_minutes AS b
    JOIN told_caches AS t ON t.replica = b.replica AND t.tier = b.tier
    WHERE
        in_window(minute, since_border, until_border)
        AND matches(t.model, wanted_model) AND matches(b.replica, wanted_replica)
),

told AS (
    SELECT replica, model, age.kind AS kind, unnest(map_entries(age.buckets)) AS entry FROM kinds
),

-- Counts of samples are cumulative: add them up per process first, where the bounds are the same.
cumulative AS (
    SELECT
        observer, kind, replica, model, engine, version, bound.key AS upper,
        sum(bound.value * share) AS up_to
    FROM (
        SELECT *, unnest(map_entries(buckets)) AS bound
        FROM sampled_ages(since_border, until_border, wanted_model, wanted_replica)
    )
    GROUP BY ALL
)

SELECT
    'events' AS basis, 'engine' AS observer, replica, model, kind,
    pow(1.08, entry.key) AS lower, pow(1.08, entry.key + 1) AS upper,
    entry.value::DOUBLE AS blocks
FROM told
UNION ALL
SELECT
    'engine sample', observer, replica, model, kind,
    coalesce(lag(upper) OVER bounds, 0), upper,
    up_to - coalesce(lag(up_to) OVER bounds, 0)
FROM cumulative
WINDOW bounds AS (
    PARTITION BY observer, kind, replica, model, engine, version ORDER BY upper
);

-- Tokens of running requests that are resident too, so that they are not counted twice: all but
-- the last block of each request, which is not full yet and has no hash. Unknown stays unknown.
CREATE OR REPLACE MACRO running_resident(
    running_tokens, resident_tokens, running_requests, block_size
) AS CASE
    WHEN running_tokens IS NOT NULL AND resident_tokens IS NOT NULL THEN least(
        resident_tokens,
        greatest(running_tokens - coalesce(running_requests * block_size, 0), 0)
    )
END;

-- Reusable but unreferenced, by events: what is resident and not held by running requests, at most
-- what these leave of the capacity (least passes over an unknown one). Unknown stays unknown.
CREATE OR REPLACE MACRO cached_by_events(
    running_tokens, resident_tokens, running_requests, block_size, capacity_tokens
) AS CASE
    WHEN running_tokens IS NOT NULL AND resident_tokens IS NOT NULL THEN greatest(least(
        resident_tokens
            - running_resident(running_tokens, resident_tokens, running_requests, block_size),
        capacity_tokens - running_tokens
    ), 0)
END;

CREATE OR REPLACE MACRO free_by_events(running_tokens, cached_tokens, capacity_tokens) AS
    CASE
        WHEN capacity_tokens - running_tokens - cached_tokens < 0 THEN 0
        ELSE capacity_tokens - running_tokens - cached_tokens
    END;

-- Samples of engines with running, cached and free tokens: by the engine's own gauges where it has
-- them, else by its usage and what events said was resident at that time.
CREATE OR REPLACE VIEW memory_samples AS
WITH samples AS (
    SELECT
        ts, replica, model, kv_usage_ratio, running_requests, block_size,
        kv_capacity_tokens AS capacity_tokens,
        coalesce(kv_running_tokens, round(kv_usage_ratio * kv_capacity_tokens)::BIGINT)
            AS running_tokens,
        kv_cached_tokens, kv_free_tokens,
        coalesce(kv_usage_ratio, kv_running_tokens, kv_cached_tokens) IS NOT NULL
            AS tells_memory
    FROM engine_own
),

held AS (
    SELECT r.*, t.told_until
    FROM residency AS r JOIN told_caches AS t USING (replica, tier)
    WHERE tier = 'device'
)

SELECT
    s.ts, s.replica, s.model, s.kv_usage_ratio, s.running_requests, s.capacity_tokens,
    s.running_tokens, s.tells_memory,
    coalesce(s.block_size, h.block_size) AS block_size,
    CASE WHEN s.tells_memory THEN h.resident_tokens END AS resident_tokens,
    CASE
        WHEN s.kv_cached_tokens IS NOT NULL THEN 'engine'
        WHEN s.running_tokens IS NOT NULL AND h.resident_tokens IS NOT NULL THEN 'events'
    END AS basis,
    CASE
        WHEN basis = 'engine' THEN s.kv_cached_tokens
        ELSE cached_by_events(
            s.running_tokens, h.resident_tokens, s.running_requests,
            coalesce(s.block_size, h.block_size), s.capacity_tokens
        )::BIGINT
    END AS cached_tokens,
    CASE
        WHEN basis = 'events'
            THEN free_by_events(s.running_tokens, cached_tokens, s.capacity_tokens)::BIGINT
        ELSE s.kv_free_tokens
    END AS free_tokens,
    CASE WHEN basis = 'events' THEN coalesce(
        h.uncertain,
        CASE WHEN s.ts > h.told_until + INTERVAL 5 MINUTE
            THEN strftime(h.told_until, 'no events since %Y-%m-%d %H:%M UTC') END,
        CASE WHEN h.resident_tokens > s.capacity_tokens
            THEN 'more is resident than the memory holds' END
    ) END AS uncertain
FROM samples AS s
ASOF LEFT JOIN held AS h ON s.replica = h.replica AND s.ts >= h.stood_at;

-- Resident tokens now, per model and tier: the last word on each cache.
CREATE OR REPLACE VIEW resident_totals AS
SELECT t.model, r.tier, sum(resident_tokens)::BIGINT AS resident_tokens
FROM (
    SELECT replica, tier, arg_max(resident_tokens, stood_at) AS resident_tokens
    FROM residency GROUP BY ALL
) AS r
JOIN told_caches AS t ON t.replica = r.replica AND t.tier = r.tier
GROUP BY ALL;

-- The model of events that name none: the caches', where they all have the same.
CREATE OR REPLACE VIEW sole_model AS
SELECT CASE WHEN count(DISTINCT model) = 1 THEN any_value(model) ELSE '' END AS sole
FROM told_caches;

-- The prefixes of the latest snapshot with their weight.
CREATE OR REPLACE VIEW held_prefixes AS
WITH prefixes AS (
    SELECT p.*, coalesce(p.model, s.sole) AS named
    FROM resident_prefixes AS p CROSS JOIN sole_model AS s
)

SELECT p.*, p.tokens * g.bytes_per_token AS bytes, t.resident_tokens
FROM prefixes AS p
LEFT JOIN kv_geometry AS g ON g.model = p.named
LEFT JOIN resident_totals AS t ON t.model = p.named AND t.tier = p.tier;
