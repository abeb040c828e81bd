-- What the questions about offload share: what was moved to and from lower tiers, and how long a
-- token took to load against to prefill. docs/offload.md says what the figures mean.

-- What moved between device and lower tiers, once per step the interval reaches into (step_start
-- NULL without a step). Increases are spread evenly over their interval.
CREATE OR REPLACE MACRO offload_moved(
    dimension, since_border, until_border, step_seconds, wanted_model, wanted_replica
) AS TABLE
WITH stepped AS (
    SELECT
        *,
        CASE
            WHEN dimension IS NULL THEN ''
            WHEN dimension = 'model' THEN coalesce(model, '')
            WHEN dimension = 'replica' THEN replica
            WHEN dimension = 'engine' THEN engine
            ELSE error('unknown dimension ' || dimension)
        END AS value,
        unnest(steps_of(since, ts, since_border, until_border, step_seconds)) AS step_start
    FROM engine_samples
    WHERE
        reaches_into(since, ts, since_border, until_border)
        AND matches(coalesce(model, ''), wanted_model)
        AND matches(replica, wanted_replica)
        AND coalesce(offload_tokens, offload_bytes, offload_seconds, offload_dropped) IS NOT NULL
),

shares AS (
    SELECT
        * REPLACE (coalesce(model, '') AS model),
        step_share(since, ts, since_border, until_border, step_start, step_seconds) AS share
    FROM stepped
),

entries AS (
    SELECT
        step_start, value, model, replica, observer, share, 'tokens' AS unit,
        unnest(map_entries(offload_tokens)) AS entry
    FROM shares WHERE share > 0
    UNION ALL
    SELECT
        step_start, value, model, replica, observer, share, 'bytes',
        unnest(map_entries(offload_bytes))
    FROM shares WHERE share > 0
    UNION ALL
    SELECT
        step_start, value, model, replica, observer, share, 'seconds',
        unnest(map_entries(offload_seconds))
    FROM shares WHERE share > 0
    UNION ALL
    SELECT step_start, value, model, replica, observer, share, 'dropped',
        {'key': 'store/' || dropped.key, 'value': dropped.value}
    FROM (SELECT *, unnest(map_entries(offload_dropped)) AS dropped FROM shares WHERE share > 0)
)

SELECT
    step_start, value, model, replica, observer,
    split_part(entry.key, '/', 1) AS direction,
    split_part(entry.key, '/', 2) AS tier,
    sum(entry.value * share) FILTER (unit = 'tokens') AS tokens,
    sum(entry.value * share) FILTER (unit = 'bytes') AS bytes,
    sum(entry.value * share) FILTER (unit = 'seconds') AS seconds,
    sum(entry.value * share) FILTER (unit = 'dropped') AS dropped_tokens
FROM entries
GROUP BY ALL;

-- Cached tokens that no longer were on the device, by the tier they came from, as engines count.
CREATE OR REPLACE MACRO offload_reused(
    dimension, since_border, until_border, wanted_model, wanted_replica
) AS TABLE
SELECT
    CASE dimension WHEN 'model' THEN model WHEN 'replica' THEN replica ELSE '' END AS value,
    model, replica, entry.tier, sum(entry.tokens * share) AS tokens
FROM (
    SELECT
        model, replica, share,
        unnest([
            {'tier': 'host', 'tokens': cached_host}, {'tier': 'disk', 'tokens': cached_disk},
            {'tier': 'remote', 'tokens': coalesce(cached_remote, external_hit_tokens)}
        ]) AS entry
    FROM engine_shares(since_border, until_border, NULL, wanted_model, wanted_replica)
)
WHERE entry.tokens > 0
GROUP BY ALL;

-- Per value, model, replica and tier: what was written to it and brought back. Where the engine and
-- a KV store both count a measure they count the same transfers, and the engine's is taken. Tokens
-- that came through a connector which does not name their tier stand as 'remote': they are those of
-- the one tier whose transfers the same page counts without tokens.
CREATE OR REPLACE MACRO offload_tiers(
    dimension, since_border, until_border, wanted_model, wanted_replica
) AS TABLE
WITH counted AS (
    SELECT
        value, model, replica, tier,
        -- Each measure by the engine, else by the store.
        coalesce(sum(tokens) FILTER (direction = 'load' AND observer = 'engine'),
                 sum(tokens) FILTER (direction = 'load')) AS loaded_tokens,
        coalesce(sum(bytes) FILTER (direction = 'load' AND observer = 'engine'),
                 sum(bytes) FILTER (direction = 'load')) AS loaded_bytes,
        coalesce(sum(seconds) FILTER (direction = 'load' AND observer = 'engine'),
                 sum(seconds) FILTER (direction = 'load')) AS load_seconds,
        coalesce(sum(tokens) FILTER (direction = 'store' AND observer = 'engine'),
                 sum(tokens) FILTER (direction = 'store')) AS stored_tokens,
        coalesce(sum(bytes) FILTER (direction = 'store' AND observer = 'engine'),
                 sum(bytes) FILTER (direction = 'store')) AS stored_bytes,
        coalesce(sum(seconds) FILTER (direction = 'store' AND observer = 'engine'),
                 sum(seconds) FILTER (direction = 'store')) AS store_seconds,
        sum(dropped_tokens) AS dropped_tokens
    FROM offload_moved(
        dimension, since_border, until_border, NULL, wanted_model, wanted_replica
    )
    GROUP BY ALL
),

-- A tier whose counters stand at 0 is not at work.
at_work AS (
    SELECT *, count(*) OVER (PARTITION BY value, model, replica) AS tiers
    FROM counted
    WHERE coalesce(loaded_tokens, 0) + coalesce(loaded_bytes, 0) + coalesce(stored_tokens, 0)
        + coalesce(stored_bytes, 0) + coalesce(load_seconds, 0) + coalesce(dropped_tokens, 0) > 0
),

nameless AS (
    SELECT value, model, replica, tier FROM at_work
    WHERE tiers = 1 AND tier <> 'remote' AND loaded_tokens IS NULL
),

reused AS (
    SELECT
        r.value, r.model, r.replica,
        CASE WHEN r.tier = 'remote' THEN coalesce(n.tier, 'remote') ELSE r.tier END AS tier,
        sum(r.tokens) AS reused_tokens
    FROM offload_reused(dimension, since_border, until_border, wanted_model, wanted_replica) AS r
    LEFT JOIN nameless AS n
        ON n.value = r.value AND n.model = r.model AND n.replica = r.replica
    GROUP BY ALL
)

SELECT
    coalesce(a.value, r.value) AS value, coalesce(a.model, r.model) AS model,
    coalesce(a.replica, r.replica) AS replica, coalesce(a.tier, r.tier) AS tier,
    coalesce(a.loaded_tokens, r.reused_tokens) AS loaded_tokens,
    CASE
        WHEN a.loaded_tokens IS NOT NULL THEN 'transfers'
        WHEN r.reused_tokens IS NOT NULL THEN 'cached tokens'
    END AS tokens_from,
    loaded_bytes, load_seconds, stored_tokens, stored_bytes, store_seconds, dropped_tokens
FROM at_work AS a
FULL JOIN reused AS r
    ON a.value = r.value AND a.model = r.model AND a.replica = r.replica
    AND a.tier = r.tier;

-- A speed over rows of which some count bytes or time alone: that of the rows that count both.
CREATE OR REPLACE MACRO transfer_speed(bytes_moved, seconds_taken) AS ratio(
    sum(bytes_moved) FILTER (seconds_taken IS NOT NULL),
    sum(seconds_taken) FILTER (bytes_moved IS NOT NULL)
);

-- Time to load a token against time to prefill one, by value and tier. A replica's own prefill
-- speed, else the mean of its model's, weighted by the requests behind them.
CREATE OR REPLACE MACRO offload_loads(
    dimension, since_border, until_border, wanted_model, wanted_replica
) AS TABLE
WITH speeds AS (
    FROM prefill_speeds(since_border, until_border, wanted_model, wanted_replica)
),

model_speeds AS (
    SELECT model, sum(requests / tokens_per_second) / sum(requests) AS seconds_per_token
    FROM speeds GROUP BY model
),

tiers AS (
    SELECT
        t.*,
        coalesce(1 / s.tokens_per_second, m.seconds_per_token) AS prefill_seconds_per_token
    FROM offload_tiers(
        dimension, since_border, until_border, wanted_model, wanted_replica
    ) AS t
    LEFT JOIN speeds AS s ON s.model = t.model AND s.replica = t.replica
    LEFT JOIN model_speeds AS m ON m.model = t.model
)

-- Seconds are set against tokens or bytes only where both are counted.
SELECT
    value, tier,
    sum(loaded_tokens) AS loaded_tokens,
    string_agg(DISTINCT tokens_from, ' and ' ORDER BY tokens_from) AS tokens_from,
    sum(loaded_bytes) AS loaded_bytes,
    sum(load_seconds) AS load_seconds,
    transfer_speed(loaded_bytes, load_seconds) AS bytes_per_second,
    -- Of replicas that tell all of what their loads took, writes included.
    sum(loaded_tokens) FILTER (load_seconds > 0 AND store_seconds IS NOT NULL) AS timed_tokens,
    ratio(
        sum(load_seconds) FILTER (loaded_tokens > 0),
        sum(loaded_tokens) FILTER (load_seconds > 0)
    ) AS load_seconds_per_token,
    ratio(
        sum(loaded_tokens * prefill_seconds_per_token),
        sum(loaded_tokens) FILTER (prefill_seconds_per_token IS NOT NULL)
    ) AS prefill_seconds_per_token,
    sum(stored_tokens) AS stored_tokens,
    sum(stored_bytes) AS stored_bytes,
    sum(store_seconds) AS store_seconds,
    sum(dropped_tokens) AS dropped_tokens
FROM tiers
GROUP BY value, tier;

-- KV tokens that a map of a tier's memory ("host/tokens" -> amount) tells; NULL where it does not.
CREATE OR REPLACE MACRO kv_tokens(amounts, tier, block_size, bytes_per_token) AS coalesce(
    amounts[tier || '/tokens'],
    amounts[tier || '/blocks'] * block_size,
    round(amounts[tier || '/bytes'] / bytes_per_token)
)::BIGINT;
