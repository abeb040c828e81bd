-- What the question `changes` is made of: one macro per kind of change, each with the same columns.
-- `lower` and `upper` bound, in tokens of the whole window, what the change could win; `days` is what
-- they are divided by. `template`, `tenant`, `route`, `model` are '' where the change reaches over
-- several: they tell which changes may speak of the same tokens.

-- The window in full: the last seven days of data where no border is given. It ends with the data,
-- and shorter than a day counts as a day: nothing is extrapolated to hours nobody saw.
CREATE OR REPLACE MACRO change_window(since_border, until_border) AS TABLE
WITH data AS (
    SELECT
        least(
            (SELECT min(hour) FROM hour_rollup), (SELECT min(minute) FROM block_minutes)
        ) AS first_moment,
        greatest(
            (SELECT max(ts) FROM requests), (SELECT max(hour) FROM hour_rollup),
            (SELECT max(heard) FROM block_minutes), (SELECT max(ts) FROM engine_own)
        ) + INTERVAL 1 MICROSECOND AS last_moment
)

SELECT
    least(coalesce(until_border::TIMESTAMP, last_moment), last_moment) AS ends,
    coalesce(since_border::TIMESTAMP, ends - INTERVAL 7 DAY) AS begins,
    greatest(1, epoch(ends - greatest(begins, first_moment)) / 86400) AS days,
    -- Of those, the ones with single rows.
    greatest(1, epoch(ends - greatest(begins, first_moment, (SELECT hour FROM hot_from))) / 86400)
        AS hot_days
FROM data
WHERE last_moment IS NOT NULL;

-- A figure of a sentence: 1,234,567, or 38.2 %.
CREATE OR REPLACE MACRO count_text(amount) AS format('{:,}', round(amount)::BIGINT);
CREATE OR REPLACE MACRO share_text(share) AS format('{:.1f} %', 100 * share);
CREATE OR REPLACE MACRO time_text(moment) AS strftime(moment::TIMESTAMP, '%Y-%m-%dT%H:%M:%SZ');

-- The week before the window a moment lies in, 7 x 24 hours each: 1 is the one right before, 0 the
-- window itself.
CREATE OR REPLACE MACRO weeks_before(moment, begins) AS
    CASE WHEN moment >= begins THEN 0 ELSE ceil(epoch(begins - moment) / 604800) END::BIGINT;

-- Tokens whose cached count nobody told, by the source that could tell it (hours kept in roll-ups
-- only: by model). Seen, some of them would turn out computed, and some of those could be won: from
-- none to all.
CREATE OR REPLACE MACRO change_coverage(
    since_border, until_border, wanted_model, wanted_route, wanted_template, wanted_tenant,
    least_coverage
) AS TABLE
WITH sums AS (
    SELECT
        CASE WHEN source IS NULL THEN 'model' ELSE 'source' END AS dimension,
        coalesce(source, model) AS subject,
        CASE WHEN count(DISTINCT model) = 1 THEN any_value(model) ELSE '' END AS model,
        sum(prompt_tokens) - total(ineligible_prompt_tokens) AS eligible_tokens,
        eligible_tokens - total(reported_prompt_tokens) AS untold_tokens,
        sum(requests) - sum(ineligible_requests) - sum(reported_requests) AS untold_requests,
        any_value(days) AS days
    FROM traffic, change_window(since_border, until_border)
    WHERE
        ts >= begins AND ts < ends AND kept_as <> 'minute'
        AND matches(model, wanted_model) AND matches(route, wanted_route)
        AND matches(template, wanted_template) AND matches(tenant, wanted_tenant)
    GROUP BY 1, 2
)

SELECT
    'coverage gap' AS kind, dimension, subject, model, '' AS route, '' AS template, '' AS tenant,
    'untold' AS tokens_are, 0.0 AS lower, untold_tokens::DOUBLE AS upper, days,
    'estimated' AS basis,
    format('Have {} {} tell the cached tokens of every request', dimension, subject) AS sentence,
    format(
        'The cached count of {} requests a day is not known: {} of {} prompt tokens a day '
        '(coverage {}). How many of them could be won shows only once they are told.',
        count_text(untold_requests / days), count_text(untold_tokens / days),
        count_text(eligible_tokens / days), share_text(1 - ratio(untold_tokens, eligible_tokens))
    ) AS evidence,
    'prefixscope doctor --config prefixscope.yml  # names the flag or field: vLLM '
    '--enable-prompt-tokens-details, SGLang --enable-cache-report' AS next_step
FROM sums
WHERE untold_tokens > (1 - least_coverage) * eligible_tokens;

-- Hours of the roll-ups in weeks before the window (0 = it), at the finest grain they keep, each
-- with its load: the model's KV usage in tenths where pages tell it of nearly every hour of all
-- weeks, else how many prompt tokens the model had in that hour.
CREATE OR REPLACE MACRO change_cells(
    since_border, until_border, weeks, wanted_model, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH hours AS (
    SELECT
        hour, weeks_before(hour, begins) AS week,
        coalesce(model, '') AS model, coalesce(route, '') AS route,
        coalesce(template, '') AS template, coalesce(tenant, '') AS tenant,
        prompt_tokens, reported_requests, reported_prompt_tokens, cached_tokens
    FROM hour_rollup, change_window(since_border, until_border)
    WHERE
        hour >= begins - to_days((7 * weeks)::INTEGER) AND hour < ends
        AND matches(coalesce(model, ''), wanted_model)
),

used AS (
    SELECT
        date_trunc('hour', ts) AS hour, coalesce(model, '') AS model,
        floor(10 * avg(kv_usage_ratio))::BIGINT AS usage_tenth
    FROM engine_own
    WHERE role <> 'decode' AND kv_usage_ratio IS NOT NULL
    GROUP BY ALL
),

loads AS (
    SELECT
        hour, model,
        CASE
            WHEN count(usage_tenth) OVER of_model >= 0.9 * count(*) OVER of_model THEN usage_tenth
            ELSE class_from(prompt_tokens)
        END AS load
    FROM (SELECT hour, model, sum(prompt_tokens) AS prompt_tokens FROM hours GROUP BY hour, model)
    LEFT JOIN used USING (hour, model)
    WINDOW of_model AS (PARTITION BY model)
)

SELECT
    week, model, route, template, tenant, load,
    total(reported_requests) AS requests,
    total(reported_prompt_tokens) AS tokens, total(cached_tokens) AS cached_tokens
FROM hours
JOIN loads USING (hour, model)
WHERE
    matches(route, wanted_route) AND matches(template, wanted_template)
    AND matches(tenant, wanted_tenant)
GROUP BY ALL
HAVING tokens > 0;

-- What each earlier week would have made of the window's traffic: per cell (model, route, template,
-- tenant, load) its ratio then less its ratio now, times its tokens now. So neither mix nor load
-- enters. A cell is compared only where it had a tenth of the tokens and prompts within a quarter
-- of the length: a conversation that grew longer is another kind of traffic.
CREATE OR REPLACE MACRO change_gains(
    since_border, until_border, weeks, wanted_model, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH cells AS MATERIALIZED (
    FROM change_cells(
        since_border, until_border, weeks,
        wanted_model, wanted_route, wanted_template, wanted_tenant
    )
)

SELECT
    now.model, now.route, now.template, now.tenant, before.week,
    sum(now.tokens) AS compared_tokens,
    sum(now.tokens * (
        before.cached_tokens / before.tokens - now.cached_tokens / now.tokens
    )) AS gain_tokens
FROM cells AS now
JOIN cells AS before USING (model, route, template, tenant, load)
WHERE
    now.week = 0 AND before.week > 0
    AND before.tokens >= 0.1 * now.tokens
    AND ratio(before.tokens / before.requests, now.tokens / now.requests) BETWEEN 0.8 AND 1.25
GROUP BY ALL;

-- The lower median of some gains and of 0, which is what the window itself gains over itself: half
-- of all weeks, this one among them, reached at least so much.
CREATE OR REPLACE MACRO typical_gain(gains) AS
    greatest(0, list_sort(list_append(gains, 0.0))[(len(gains) + 2) // 2]);

-- Templates, else tenants, else routes below their own best week. Tokens of a template that is worth
-- a row belong to it; all others to their tenant, or their route, so that no token is in two rows.
-- At most the best week is won, at least what half of the weeks reached. No row where less than half
-- of the tokens can be compared, or where one week alone was so good: that may be chance.
CREATE OR REPLACE MACRO change_below_best(
    since_border, until_border, weeks, wanted_model, wanted_route, wanted_template, wanted_tenant,
    least_per_day, zone
) AS TABLE
WITH gains AS MATERIALIZED (
    FROM change_gains(
        since_border, until_border, weeks,
        wanted_model, wanted_route, wanted_template, wanted_tenant
    )
),

current_cells AS MATERIALIZED (
    SELECT
        coalesce(model, '') AS model, coalesce(route, '') AS route,
        coalesce(template, '') AS template, coalesce(tenant, '') AS tenant,
        total(reported_prompt_tokens) AS tokens, total(cached_tokens) AS cached_tokens,
        any_value(begins) AS begins, any_value(ends) AS ends, any_value(days) AS days
    FROM hour_rollup, change_window(since_border, until_border)
    WHERE hour >= begins AND hour < ends
    GROUP BY ALL
    HAVING tokens > 0
),

large_templates AS (
    SELECT DISTINCT g.template
    FROM (
        SELECT template, week, sum(gain_tokens) AS gain, sum(compared_tokens) AS compared
        FROM gains GROUP BY ALL
    ) AS g
    JOIN (
        SELECT template, sum(tokens) AS tokens, any_value(days) AS days
        FROM current_cells GROUP BY ALL
    ) AS n USING (template)
    WHERE template <> '' AND gain >= least_per_day * days AND compared >= 0.5 * tokens
),

owned AS (
    SELECT
        *,
        CASE
            WHEN template IN (FROM large_templates) THEN ['template', template]
            WHEN tenant <> '' THEN ['tenant', tenant]
            WHEN route <> '' THEN ['route', route]
            ELSE ['model', model]
        END AS owner
    FROM current_cells
),

subjects AS (
    SELECT
        owner, sum(tokens) AS tokens, sum(cached_tokens) AS cached_tokens,
        any_value(begins) AS begins, any_value(ends) AS ends, any_value(days) AS days,
        CASE WHEN count(DISTINCT model) = 1 THEN any_value(model) ELSE '' END AS model
    FROM owned GROUP BY owner
),

weekly AS (
    SELECT owner, week, sum(gain_tokens) AS gain, sum(compared_tokens) AS compared
    FROM gains JOIN owned USING (model, route, template, tenant)
    GROUP BY ALL
),

judged AS (
    SELECT
        owner, max(gain) AS upper, typical_gain(list(gain)) AS lower,
        arg_max(week, gain) AS best_week, arg_max(compared, gain) AS compared,
        count(*) AS weeks_compared
    FROM weekly JOIN subjects USING (owner)
    WHERE compared >= 0.5 * tokens
    GROUP BY owner
    HAVING list_reverse_sort(list(gain))[least(2, count(*))] >= least_per_day * any_value(days)
)

SELECT
    'below best week' AS kind, owner[1] AS dimension, owner[2] AS subject, model,
    CASE WHEN dimension = 'route' THEN subject ELSE '' END AS route,
    CASE WHEN dimension = 'template' THEN subject ELSE '' END AS template,
    CASE WHEN dimension = 'tenant' THEN subject ELSE '' END AS tenant,
    'told' AS tokens_are, lower, upper, days, 'estimated' AS basis,
    format('Bring {} {} back to what it reached before', dimension, subject) AS sentence,
    format(
        'Hit ratio {}; at the mix and load of now it would be {} by the week from {} on, '
        'its best of {}, and {} by the middle one ({} of its tokens can be compared).',
        share_text(ratio(cached_tokens, tokens)),
        share_text(ratio(cached_tokens + upper, tokens)),
        strftime(local_time(begins - to_days((7 * best_week)::INTEGER), zone), '%Y-%m-%d'),
        weeks_compared,
        share_text(ratio(cached_tokens + lower, tokens)), share_text(ratio(compared, tokens))
    ) AS evidence,
    format(
        'prefixscope explain --by {} --since {} --until {} --baseline {} --baseline-until {}',
        CASE WHEN dimension = 'template' THEN 'template_version' ELSE 'template' END,
        time_text(begins), time_text(ends),
        time_text(begins - to_days((7 * best_week)::INTEGER)),
        time_text(begins - to_days((7 * best_week - 7)::INTEGER))
    ) AS next_step
FROM judged
JOIN subjects USING (owner);

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

-- Turns that resend a conversation: the next request of a session, of the same model and template,
-- within ten minutes and no shorter than the one before it. What that one had in its prompt can at
-- most be cached. `moved`: another replica served it.
CREATE OR REPLACE MACRO change_turns(
    since_border, until_border, wanted_model, wanted_route, wanted_template, wanted_tenant
) AS TABLE
SELECT
    model, template, resent_tokens, days,
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
        replica <> lag(replica) OVER earlier AS moved
    FROM requests, change_window(since_border, until_border)
    WHERE
        session IS NOT NULL AND ts >= begins - INTERVAL 10 MINUTE AND ts < ends
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
    since_border, until_border, wanted_model, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH turns AS MATERIALIZED (
    FROM change_turns(
        since_border, until_border, wanted_model, wanted_route, wanted_template, wanted_tenant
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
        t.*, s.turns AS stayed_turns, s.share AS stayed_share,
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
        model, template, moved, any_value(days) AS days, count(*) AS turns,
        any_value(stayed_share) AS stayed_share, any_value(better_share) AS better_share,
        sum(resent_tokens) AS resent_tokens, sum(cached_tokens) AS cached_tokens,
        sum(greatest(0, better_share * resent_tokens - cached_tokens)) AS lower
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
    END AS evidence,
    CASE
        WHEN moved
            THEN 'router: session affinity (a consistent hash of the session), or routing by prefix'
        ELSE 'a clock, an id or a list in changing order in front of the conversation: move it behind'
    END AS next_step
FROM sums;
