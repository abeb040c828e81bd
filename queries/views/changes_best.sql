-- Of the question `changes`: who is below its own best week, at equal mix and load. Columns as in
-- changes.sql.

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
