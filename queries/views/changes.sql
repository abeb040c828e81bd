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
        'The cached count of {} a day is not known: {} of {} prompt tokens a day '
        '(coverage {}). How many of them could be won shows only once they are told.',
        count_text(untold_requests / days)
        || CASE WHEN count_text(untold_requests / days) = '1' THEN ' request' ELSE ' requests' END,
        count_text(untold_tokens / days),
        count_text(eligible_tokens / days), share_text(1 - ratio(untold_tokens, eligible_tokens))
    ) AS evidence,
    'prefixscope doctor --config prefixscope.yml  # names the flag or field: vLLM '
    '--enable-prompt-tokens-details, SGLang --enable-cache-report' AS next_step
FROM sums
WHERE untold_tokens > (1 - least_coverage) * eligible_tokens;
