-- Of the question `changes`: what single rows and KV-cache events show. Columns as in
-- changes.sql.

-- Tokens written to a cache at a breakpoint and never read. A token that was written can be read many
-- times, so at least written - read of them were never read (reads count until an hour after the
-- window, the longest life of a write). What is read instead, if the breakpoint stood where prompts
-- agree, is at least nothing and at most what was written while an earlier write was still alive.
CREATE OR REPLACE MACRO change_breakpoints(
    since_border, until_border, wanted_model, wanted_route, wanted_template, wanted_tenant,
    least_per_day
) AS TABLE
WITH calls AS (
    SELECT
        ts, ts < ends AS in_window, hot_days AS days,
        coalesce(model, '') AS model,
        CASE
            WHEN template IS NOT NULL THEN ['template', template]
            WHEN route IS NOT NULL THEN ['route', route]
            ELSE ['model', coalesce(model, '')]
        END AS owner,
        greatest(
            coalesce(cache_write_tokens, 0),
            coalesce(cache_write_5m, 0) + coalesce(cache_write_1h, 0)
                + coalesce(cache_write_other, 0)
        ) AS written_tokens,
        coalesce(cached_tokens, 0) AS read_tokens,
        CASE WHEN cache_write_1h > 0 THEN 3600 ELSE 300 END AS life_seconds
    FROM requests, change_window(since_border, until_border)
    WHERE
        ts >= greatest(begins, (SELECT hour FROM hot_from)) AND ts < ends + INTERVAL 1 HOUR
        AND replica_role IS DISTINCT FROM 'decode'
        AND ineligible_reason IS NULL
        AND (cache_write_tokens > 0 OR cache_write_5m > 0 OR cache_write_1h > 0
            OR cache_write_other > 0 OR cached_tokens > 0)
        AND matches(coalesce(model, ''), wanted_model)
        AND matches(coalesce(route, ''), wanted_route)
        AND matches(coalesce(template, ''), wanted_template)
        AND matches(coalesce(tenant, ''), wanted_tenant)
),

sums AS (
    SELECT
        owner, model, any_value(days) AS days,
        sum(read_tokens) AS reads,
        sum(written_tokens) FILTER (in_window) AS writes,
        writes - reads AS unread
    FROM calls
    GROUP BY owner, model
    HAVING unread >= least_per_day * any_value(days)
),

-- Written while the write before it was alive.
again AS (
    SELECT owner, model, sum(written_tokens) AS tokens
    FROM (
        SELECT
            *,
            epoch(ts - lag(ts) OVER earlier) <= lag(life_seconds) OVER earlier AS alive
        FROM calls
        SEMI JOIN sums USING (owner, model)
        WHERE written_tokens > 0
        WINDOW earlier AS (PARTITION BY owner, model ORDER BY ts)
    )
    WHERE alive AND in_window
    GROUP BY ALL
)

SELECT
    'breakpoints never read' AS kind, owner[1] AS dimension, owner[2] AS subject, model,
    CASE WHEN dimension = 'route' THEN subject ELSE '' END AS route,
    CASE WHEN dimension = 'template' THEN subject ELSE '' END AS template, '' AS tenant,
    'told' AS tokens_are, 0.0 AS lower, tokens::DOUBLE AS upper, days, 'measured' AS basis,
    format(
        'Move the cache breakpoint of {} {} to the end of what its prompts share, or take it away',
        dimension, subject
    ) AS sentence,
    format(
        'Of {} tokens written a day at least {} were never read ({} were read); {} were written '
        'while an earlier write was alive, and only those can be read instead.',
        count_text(writes / days), count_text(unread / days),
        count_text(reads / days), count_text(tokens / days)
    ) AS evidence,
    'cache_control: on the last block that is the same in every prompt (tools, system), with nothing '
    'that changes (a clock, an id) before it' AS next_step
FROM sums
JOIN again USING (owner, model);

-- KV that was lost to make room and stored again: computed twice. By KV-cache events, of the device.
-- At most all that came back is won, at least what came back within `soon_seconds`.
CREATE OR REPLACE MACRO change_evicted(
    since_border, until_border, wanted_model, soon_seconds
) AS TABLE
WITH minutes AS (
    SELECT
        t.model, b.replica, b.block_size, b.uncertain, days,
        coalesce(b.evicted_blocks, 0) * b.block_size AS evicted_tokens,
        map_entries(b.evicted_reuse_gap) AS gaps
    FROM block_minutes AS b
    JOIN told_caches AS t ON t.replica = b.replica AND t.tier = b.tier
    CROSS JOIN change_window(since_border, until_border)
    WHERE
        b.minute >= begins AND b.minute < ends AND b.tier = 'device'
        AND matches(t.model, wanted_model)
),

sums AS (
    SELECT
        model, any_value(days) AS days, count(DISTINCT replica) AS replicas,
        sum(evicted_tokens) AS evicted_tokens,
        total(block_size * list_sum(list_transform(gaps, lambda e: e.value))) AS again_tokens,
        total(block_size * list_sum(list_transform(
            list_filter(gaps, lambda e: pow(1.08, e.key + 1) <= soon_seconds),
            lambda e: e.value
        ))) AS soon_tokens,
        reasons(uncertain) AS uncertain
    FROM minutes
    GROUP BY model
)

SELECT
    'evicted and reused' AS kind, 'model' AS dimension, model AS subject, model,
    '' AS route, '' AS template, '' AS tenant, 'all' AS tokens_are,
    soon_tokens::DOUBLE AS lower, again_tokens::DOUBLE AS upper, days, 'measured' AS basis,
    format('Give model {} more room for KV, or a lower tier', model) AS sentence,
    format(
        'Of {} tokens evicted a day on {} {} were stored again, {} of them within {} s: '
        'computed twice.',
        count_text(evicted_tokens / days),
        replicas || CASE replicas WHEN 1 THEN ' replica' ELSE ' replicas' END,
        count_text(again_tokens / days),
        count_text(soon_tokens / days), soon_seconds::BIGINT
    ) || coalesce(' Not certain: ' || uncertain || '.', '') AS evidence,
    'vLLM --kv-offloading-size or a higher --gpu-memory-utilization, SGLang '
    '--enable-hierarchical-cache; then: prefixscope query offload_verdict' AS next_step
FROM sums;

-- Of how many conversations one is looked at, so that the requests of those stay below `most`:
-- putting the requests of all of them in order would cost more than every other figure together.
CREATE OR REPLACE MACRO change_stride(since_border, until_border, most) AS TABLE
SELECT greatest(1, ceil(total(requests) / most))::BIGINT AS stride
FROM hour_rollup, change_window(since_border, until_border)
WHERE hour >= begins AND hour < ends;

-- Turns that resend a conversation: the next request of a session, of the same model and template,
-- within ten minutes and no shorter than the one before it. What that one had in its prompt can at
-- most be cached. `moved`: another replica served it. Each stands for `stride` turns.
CREATE OR REPLACE MACRO change_turns(
    since_border, until_border, wanted_model, wanted_route, wanted_template, wanted_tenant, most
) AS TABLE
SELECT
    model, template, resent_tokens, days, stride,
    least(cached_tokens, resent_tokens) AS cached_tokens,
    cached_tokens / resent_tokens AS share,
    coalesce(moved, false) AS moved
FROM (
    SELECT
        coalesce(model, '') AS model, coalesce(template, '') AS template,
        coalesce(route, '') AS route, coalesce(tenant, '') AS tenant,
        ts, begins, hot_days AS days, prompt_tokens,
        CASE WHEN is_reported(prompt_tokens, cached_tokens, ineligible_reason) THEN cached_tokens END
            AS cached_tokens,
        lag(prompt_tokens) OVER earlier AS resent_tokens,
        epoch(ts - lag(ts) OVER earlier) AS gap_seconds,
        replica <> lag(replica) OVER earlier AS moved, stride
    FROM
        requests, change_window(since_border, until_border),
        change_stride(since_border, until_border, most)
    WHERE
        session IS NOT NULL AND hash(session) % stride = 0 AND ts >= begins - INTERVAL 10 MINUTE AND ts < ends
        AND ts >= (SELECT hour FROM hot_from)
        AND replica_role IS DISTINCT FROM 'decode'
        AND matches(coalesce(model, ''), wanted_model)
    WINDOW earlier AS (PARTITION BY session, model, template ORDER BY ts)
)
WHERE
    ts >= begins AND gap_seconds <= 600 AND cached_tokens IS NOT NULL
    AND resent_tokens > 0 AND prompt_tokens >= resent_tokens
    AND matches(route, wanted_route) AND matches(template, wanted_template)
    AND matches(tenant, wanted_tenant);

-- Two changes that such turns show. `replica spread`: turns that moved reuse less of what they resend
-- than those of their template that stayed. `history not reused`: turns that stayed reuse under a
-- tenth of it. At most all that was resent is won; at least what the lower quarter of those that do
-- better reuse, nothing where there are not 100 of them.
CREATE OR REPLACE MACRO change_sessions(
    since_border, until_border, wanted_model, wanted_route, wanted_template, wanted_tenant, most
) AS TABLE
WITH turns AS MATERIALIZED (
    FROM change_turns(
        since_border, until_border, wanted_model, wanted_route, wanted_template, wanted_tenant,
        most
    )
),

stayed AS (
    SELECT
        model, template, count(*) AS turns, ratio(sum(cached_tokens), sum(resent_tokens)) AS share,
        quantile_cont(share, 0.25) AS low_share
    FROM turns WHERE NOT moved GROUP BY ALL
),

-- What the model's other templates reuse of their own conversations.
others AS (
    SELECT
        s.model, s.template, sum(o.turns) AS turns,
        sum(o.turns * o.low_share) / sum(o.turns) AS low_share
    FROM stayed AS s
    JOIN stayed AS o ON o.model = s.model AND o.template <> s.template AND o.share >= 0.1
    GROUP BY ALL
),

judged AS (
    SELECT
        t.*, s.share AS stayed_share,
        CASE
            WHEN moved THEN s.low_share
            WHEN o.turns >= 100 THEN o.low_share
            ELSE 0
        END AS better_share
    FROM turns AS t
    JOIN stayed AS s USING (model, template)
    LEFT JOIN others AS o USING (model, template)
    WHERE s.turns >= 100 AND (moved OR (s.share < 0.1 AND resent_tokens >= 1024))
),

sums AS (
    SELECT
        model, template, moved, any_value(days) AS days, any_value(stride) AS stride,
        sum(stride) AS turns,
        any_value(stayed_share) AS stayed_share, any_value(better_share) AS better_share,
        sum(stride * resent_tokens) AS resent_tokens,
        sum(stride * cached_tokens) AS cached_tokens,
        sum(stride * greatest(0, better_share * resent_tokens - cached_tokens)) AS lower
    FROM judged
    GROUP BY ALL
    HAVING NOT moved OR ratio(sum(cached_tokens), sum(resent_tokens)) + 0.05 < stayed_share
)

SELECT
    CASE WHEN moved THEN 'replica spread' ELSE 'history not reused' END AS kind,
    CASE WHEN template <> '' THEN 'template' ELSE 'model' END AS dimension,
    CASE WHEN template <> '' THEN template ELSE model END AS subject,
    model, '' AS route, template, '' AS tenant,
    CASE WHEN moved THEN 'told, moved' ELSE 'told, stayed' END AS tokens_are,
    lower, (resent_tokens - cached_tokens)::DOUBLE AS upper, days, 'estimated' AS basis,
    CASE
        WHEN moved
            THEN format('Keep conversations of {} {} on one replica', dimension, subject)
        ELSE format(
            'Find what changes at the start of the prompts of {} {} from turn to turn',
            dimension, subject
        )
    END AS sentence,
    CASE
        WHEN moved THEN format(
            '{} turns a day were served by another replica than the turn before: of {} tokens a '
            'day they resend {} were cached, of those that stay {}.',
            count_text(turns / days), count_text(resent_tokens / days),
            share_text(ratio(cached_tokens, resent_tokens)), share_text(stayed_share)
        )
        ELSE format(
            '{} turns a day resend {} tokens within ten minutes, and {} of them were cached; {}.',
            count_text(turns / days), count_text(resent_tokens / days),
            share_text(ratio(cached_tokens, resent_tokens)),
            CASE
                WHEN better_share > 0
                    THEN 'three of four turns of the model''s other templates reuse more than '
                        || share_text(better_share)
                ELSE 'nothing of the model shows how much could be'
            END
        )
    END || CASE WHEN stride > 1 THEN format(' Counted in one of {} conversations.', stride) ELSE '' END
        AS evidence,
    CASE
        WHEN moved
            THEN 'router: session affinity (a consistent hash of the session), or routing by prefix'
        ELSE 'a clock, an id or a list in changing order in front of the conversation: move it behind'
    END AS next_step
FROM sums;

-- Hours of single rows by template: requests, and over how many replicas they were spread, in equal
-- shares (two that share evenly are 2, one that has nearly all is nearly 1). Templates whose
-- conversations are known are left to change_sessions.
CREATE OR REPLACE MACRO change_spread_hours(
    since_border, until_border, wanted_model, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH shares AS (
    SELECT
        date_trunc('hour', ts) AS hour, coalesce(model, '') AS model,
        coalesce(template, '') AS template, replica,
        any_value(begins) AS begins, any_value(hot_days) AS days,
        count(*) AS requests, count(session) AS in_sessions,
        sum(prompt_tokens)::DOUBLE AS tokens, sum(cached_tokens) AS cached_tokens
    FROM requests, change_window(since_border, until_border)
    WHERE
        ts >= begins - INTERVAL 28 DAY AND ts < ends AND ts >= (SELECT hour FROM hot_from)
        AND replica IS NOT NULL AND replica_role IS DISTINCT FROM 'decode'
        AND is_reported(prompt_tokens, cached_tokens, ineligible_reason)
        AND matches(coalesce(model, ''), wanted_model)
        AND matches(coalesce(route, ''), wanted_route)
        AND matches(coalesce(template, ''), wanted_template)
        AND matches(coalesce(tenant, ''), wanted_tenant)
    GROUP BY ALL
)

SELECT
    model, template, hour >= begins AS is_now, class_from(sum(requests)) AS class_requests,
    round(pow(sum(tokens), 2) / sum(tokens * tokens))::BIGINT AS spread,
    sum(requests) AS requests, sum(in_sessions) AS in_sessions, sum(tokens) AS tokens,
    sum(cached_tokens) AS cached_tokens, any_value(days) AS days
FROM shares
GROUP BY hour, model, template, is_now
HAVING sum(tokens) > 0;

-- Templates without known conversations that reuse less in hours on many replicas than in hours of as
-- many requests on half of them or fewer (four weeks and the window, three such hours at least, prompts
-- within a quarter of the length). At most that difference is won; nothing is sure, for something
-- else may have been different then.
CREATE OR REPLACE MACRO change_spread(
    since_border, until_border, wanted_model, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH hours AS MATERIALIZED (
    FROM change_spread_hours(
        since_border, until_border, wanted_model, wanted_route, wanted_template, wanted_tenant
    )
),

cells AS (
    SELECT
        model, template, class_requests, spread, any_value(days) AS days,
        sum(requests) AS requests, sum(tokens) AS tokens, sum(cached_tokens) AS cached_tokens
    FROM hours
    WHERE is_now AND spread >= 2
    GROUP BY ALL
),

compared AS (
    SELECT
        now.model, now.template, now.spread, now.class_requests,
        any_value(now.days) AS days, any_value(now.tokens) AS tokens,
        any_value(now.cached_tokens) AS cached_tokens, max(few.spread) AS few_spread,
        sum(few.cached_tokens) / sum(few.tokens) AS few_ratio
    FROM cells AS now
    JOIN hours AS few USING (model, template, class_requests)
    WHERE
        few.spread <= now.spread / 2
        AND ratio(few.tokens / few.requests, now.tokens / now.requests) BETWEEN 0.8 AND 1.25
    GROUP BY ALL
    HAVING count(*) >= 3
),

sums AS (
    SELECT
        model, template, any_value(days) AS days, sum(tokens) AS tokens,
        sum(cached_tokens) AS cached_tokens, sum(tokens * few_ratio) AS few_tokens,
        min(spread) AS spread, max(few_spread) AS few_spread
    FROM compared
    WHERE few_ratio > cached_tokens / tokens
    GROUP BY model, template
)

SELECT
    'replica spread' AS kind,
    CASE WHEN template <> '' THEN 'template' ELSE 'model' END AS dimension,
    CASE WHEN template <> '' THEN template ELSE model END AS subject,
    model, '' AS route, template, '' AS tenant, 'told' AS tokens_are,
    0.0 AS lower, (few_tokens - cached_tokens)::DOUBLE AS upper, days, 'estimated' AS basis,
    format('Keep the requests of {} {} on fewer replicas', dimension, subject) AS sentence,
    format(
        'In hours in which at least {} replicas shared them {} of {} tokens a day were cached, in '
        'hours of as many requests on at most {} it was {}.',
        spread, share_text(ratio(cached_tokens, tokens)), count_text(tokens / days),
        few_spread, share_text(ratio(few_tokens, tokens))
    ) AS evidence,
    'router: routing by prefix, or a consistent hash of the template' AS next_step
FROM sums
WHERE NOT EXISTS (
    SELECT 1 FROM hours
    WHERE hours.model = sums.model AND hours.template = sums.template AND in_sessions > 0
);
