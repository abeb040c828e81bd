-- The alerts of deploy/prometheus/prefixscope.rules.yml, asked of the store. Names, severities,
-- summaries and thresholds are those of the rules (a test compares); where a rule waits (`for`), the
-- window here is longer by that, and so are least tokens. `asked_at` is when they are asked: nothing
-- reads the clock.

-- Window and wait of each rule, and what its value is compared with. Constants, so that a scan skips
-- what is older; `wanted` is the name of the alert.
CREATE OR REPLACE MACRO alert_holds_seconds(wanted) AS MAP {
    'PrefixcachePeakHitDrop': 3600,
    'PrefixcacheHitDrop': 3600,
    'PrefixcacheTemplateHitCollapse': 2700,
    'PrefixcacheHitsFrozen': 1200,
    'PrefixcacheCoverageLost': 2400,
    'PrefixcacheKvSaturated': 1500,
    'PrefixcacheEvictionRegret': 2700,
    'PrefixcacheOffloadNotPaying': 86400,
    'PrefixcacheReplicaOutlier': 2700,
    'PrefixcacheStaleReuse': 3600,
    'PrefixcacheStaleReuseLikely': 3600,
    'PrefixcacheCrossScopeReuse': 3600,
    'PrefixcacheResetStorm': 3600,
    'PrefixscopeTargetDown': 300,
    'PrefixscopeMetricMissing': 1800,
    'PrefixscopeLagging': 1800,
    'PrefixscopeRejecting': 1800,
    'PrefixscopeLabelsFolded': 86400
}[wanted];
CREATE OR REPLACE MACRO alert_seconds(wanted) AS to_seconds(alert_holds_seconds(wanted));
CREATE OR REPLACE MACRO alert_threshold(wanted) AS MAP {
    'PrefixcacheTemplateHitCollapse': 0.33::DOUBLE,
    'PrefixcacheHitsFrozen': 0::DOUBLE,
    'PrefixcacheCoverageLost': 0.5::DOUBLE,
    'PrefixcacheKvSaturated': 0.95::DOUBLE,
    'PrefixcacheEvictionRegret': 0.3::DOUBLE,
    'PrefixcacheOffloadNotPaying': 0::DOUBLE,
    'PrefixcacheReplicaOutlier': 0.5::DOUBLE,
    'PrefixcacheStaleReuse': 0::DOUBLE,
    'PrefixcacheStaleReuseLikely': 0::DOUBLE,
    'PrefixcacheCrossScopeReuse': 100::DOUBLE,
    'PrefixcacheResetStorm': 3::DOUBLE,
    'PrefixscopeTargetDown': 0::DOUBLE,
    'PrefixscopeMetricMissing': 1::DOUBLE,
    'PrefixscopeLagging': 900::DOUBLE,
    'PrefixscopeRejecting': 0.05::DOUBLE,
    'PrefixscopeLabelsFolded': 20::DOUBLE
}[wanted];

-- Not among them are PrefixscopeExporterDown and PrefixscopeNotJudging: whoever answers is up, and
-- judges.
CREATE OR REPLACE VIEW alert_rules AS
SELECT
    *, alert_holds_seconds(alert) AS holds_seconds, alert_threshold(alert) AS threshold
FROM (VALUES
    (
        'PrefixcachePeakHitDrop', 'page',
        'The token hit ratio dropped beyond what hours and load explain, and it hurts'
    ),
    (
        'PrefixcacheHitDrop', 'ticket',
        'The token hit ratio dropped beyond what hours and load explain'
    ),
    (
        'PrefixcacheTemplateHitCollapse', 'ticket',
        'A template''s prompts hardly hit any more'
    ),
    (
        'PrefixcacheHitsFrozen', 'ticket',
        'A replica reuses nothing any more'
    ),
    (
        'PrefixcacheCoverageLost', 'ticket',
        'Requests stopped reporting their cached tokens'
    ),
    (
        'PrefixcacheKvSaturated', 'ticket',
        'KV memory is full and blocks are evicted, which is not usual at this hour'
    ),
    (
        'PrefixcacheEvictionRegret', 'ticket',
        'Blocks are evicted that are wanted again soon after'
    ),
    (
        'PrefixcacheOffloadNotPaying', 'ticket',
        'Keeping KV in a lower tier costs more than it saves'
    ),
    (
        'PrefixcacheReplicaOutlier', 'ticket',
        'A replica reuses less than half of what the others of its model do'
    ),
    (
        'PrefixcacheStaleReuse', 'page',
        'KV written under other weights or another adapter is reused'
    ),
    (
        'PrefixcacheStaleReuseLikely', 'ticket',
        'KV may have been reused that was written under another model or engine version'
    ),
    (
        'PrefixcacheCrossScopeReuse', 'ticket',
        'A replica reuses what another scope computed'
    ),
    (
        'PrefixcacheResetStorm', 'ticket',
        'A replica loses its whole cache again and again'
    ),
    (
        'PrefixscopeTargetDown', 'ticket',
        'An engine''s metric page does not answer'
    ),
    (
        'PrefixscopeMetricMissing', 'ticket',
        'A metric that an engine of this kind should serve is absent'
    ),
    (
        'PrefixscopeLagging', 'ticket',
        'Request rows do not arrive, or arrive too late'
    ),
    (
        'PrefixscopeRejecting', 'ticket',
        'Request rows are rejected'
    ),
    (
        'PrefixscopeLabelsFolded', 'ticket',
        'A label takes on more names than are shown'
    )
) AS rules (alert, severity, summary);

-- What engines counted in a window, by model and replica.
CREATE OR REPLACE MACRO alert_counted(from_moment, asked_at) AS TABLE
SELECT
    model, replica,
    sum(reported_prompt_tokens * share) AS prompt_tokens,
    sum(reported_cached_tokens * share) AS cached_tokens
FROM (
    SELECT *, overlap_share(since, ts, from_moment, asked_at) AS share
    FROM engine_traffic
    WHERE ts >= from_moment AND coalesce(since, ts) < asked_at AND since IS NOT NULL
)
WHERE share > 0 AND NOT caching_off
GROUP BY ALL;

-- A template that hits less than a third of what it did: at this hour in the median of four weeks, in
-- which the lower of two hours counts; without a week of history the day before.
CREATE OR REPLACE MACRO alert_collapses(asked_at) AS TABLE
WITH now AS (
    SELECT
        model, template,
        ratio(total(cached_tokens), total(reported_prompt_tokens)) AS hit_ratio
    FROM traffic
    WHERE
        kept_as = 'row' AND ts < asked_at
        AND ts >= asked_at - alert_seconds('PrefixcacheTemplateHitCollapse')
    GROUP BY ALL
    HAVING total(reported_prompt_tokens) > 30000
),

before AS (
    SELECT
        model, template, days, hour,
        ratio(total(cached_tokens), total(reported_prompt_tokens)) AS hit_ratio
    FROM (
        SELECT
            coalesce(model, '') AS model, coalesce(template, '') AS template, hour,
            reported_prompt_tokens, cached_tokens
        FROM hour_rollup
    )
    JOIN (VALUES (1), (7), (14), (21), (28)) AS earlier (days)
        ON hour > asked_at - to_days(days) - INTERVAL 90 MINUTE
        AND hour <= asked_at - to_days(days) + INTERVAL 30 MINUTE
    GROUP BY ALL
    HAVING total(reported_prompt_tokens) > 40000
),

usual AS (
    SELECT
        model, template,
        coalesce(
            median(hit_ratio) FILTER (days >= 7), max(hit_ratio) FILTER (days = 1)
        ) AS hit_ratio
    FROM (SELECT model, template, days, min(hit_ratio) AS hit_ratio FROM before GROUP BY ALL)
    GROUP BY ALL
)

SELECT
    'PrefixcacheTemplateHitCollapse' AS alert, model, template,
    asked_at - alert_seconds('PrefixcacheTemplateHitCollapse') AS since,
    now.hit_ratio / usual.hit_ratio AS value,
    'token hit ratio ' || percent_text(now.hit_ratio) || ', usually '
    || percent_text(usual.hit_ratio) || ' at this hour.' AS description
FROM now
JOIN usual USING (model, template)
WHERE
    usual.hit_ratio > 0.1
    AND now.hit_ratio < alert_threshold('PrefixcacheTemplateHitCollapse') * usual.hit_ratio;

-- The engine is asked and finds nothing, though at this hour of the day before it did.
CREATE OR REPLACE MACRO alert_frozen(asked_at) AS TABLE
SELECT
    'PrefixcacheHitsFrozen' AS alert, model, replica,
    asked_at - alert_seconds('PrefixcacheHitsFrozen') AS since,
    now.cached_tokens AS value,
    'computed every prompt token of the last 20 minutes; at this hour of the day before it reused '
    || said_count(before.cached_tokens) || '.' AS description
FROM alert_counted(asked_at - alert_seconds('PrefixcacheHitsFrozen'), asked_at) AS now
JOIN alert_counted(
    asked_at - INTERVAL 1 DAY - alert_seconds('PrefixcacheHitsFrozen'), asked_at - INTERVAL 1 DAY
) AS before USING (model, replica)
-- The rule asks for 50,000 and 5,000 in 15 minutes.
WHERE now.cached_tokens = 0 AND now.prompt_tokens > 66667 AND before.cached_tokens > 6667;

-- Against the day before, its last hour left out.
CREATE OR REPLACE MACRO alert_coverage(asked_at) AS TABLE
WITH sides AS (
    SELECT
        model, route, ts >= asked_at - alert_seconds('PrefixcacheCoverageLost') AS is_now,
        total(prompt_tokens) - total(ineligible_prompt_tokens) AS eligible_tokens,
        ratio(total(reported_prompt_tokens), eligible_tokens) AS coverage_ratio
    FROM traffic
    WHERE
        kept_as = 'row' AND ts < asked_at AND ts >= asked_at - INTERVAL 25 HOUR
        AND (is_now OR ts < asked_at - INTERVAL 1 HOUR)
    GROUP BY ALL
)

SELECT
    'PrefixcacheCoverageLost' AS alert, model, route,
    asked_at - alert_seconds('PrefixcacheCoverageLost') AS since,
    now.coverage_ratio / before.coverage_ratio AS value,
    percent_text(now.coverage_ratio)
    || ' of the eligible prompt tokens carry a cached count, the day before '
    || percent_text(before.coverage_ratio)
    || '. Every ratio of it stands on fewer requests.' AS description
FROM sides AS now
JOIN sides AS before USING (model, route)
WHERE
    now.is_now AND NOT before.is_now AND now.eligible_tokens > 66667
    AND now.coverage_ratio < alert_threshold('PrefixcacheCoverageLost') * before.coverage_ratio;

-- Full and losing blocks; not where that was so at this hour of the day before or of a week before.
CREATE OR REPLACE MACRO alert_saturated(asked_at) AS TABLE
WITH used AS (
    SELECT ts, coalesce(model, '') AS model, replica, kv_usage_ratio
    FROM engine_own
    WHERE ts > asked_at - INTERVAL 170 HOUR AND ts <= asked_at AND kv_usage_ratio IS NOT NULL
),

now AS (
    SELECT model, replica, avg(kv_usage_ratio) AS usage_ratio
    FROM used
    WHERE ts > asked_at - alert_seconds('PrefixcacheKvSaturated')
    GROUP BY ALL
),

usual AS (
    SELECT
        model,
        max(kv_usage_ratio) FILTER (
            ts BETWEEN asked_at - INTERVAL 25 HOUR AND asked_at - INTERVAL 23 HOUR
        ) AS day_ratio,
        max(kv_usage_ratio) FILTER (
            ts BETWEEN asked_at - INTERVAL 169 HOUR AND asked_at - INTERVAL 167 HOUR
        ) AS week_ratio
    FROM used
    GROUP BY ALL
),

lost AS (
    SELECT replica, sum(evicted_blocks) AS evicted_blocks
    FROM block_turnover(
        asked_at - alert_seconds('PrefixcacheKvSaturated'), asked_at, NULL::BIGINT,
        NULL::VARCHAR, NULL::VARCHAR
    )
    WHERE tier = 'device'
    GROUP BY ALL
)

SELECT
    'PrefixcacheKvSaturated' AS alert, model, replica,
    asked_at - alert_seconds('PrefixcacheKvSaturated') AS since,
    usage_ratio AS value,
    'running requests hold ' || percent_text(usage_ratio) || ' of its KV memory, and '
    || said_count(evicted_blocks) || ' blocks were evicted in 25 minutes.' AS description
FROM now
JOIN lost USING (replica)
JOIN usual USING (model)
WHERE
    usage_ratio > alert_threshold('PrefixcacheKvSaturated') AND evicted_blocks > 0
    AND day_ratio <= 0.9 AND coalesce(week_ratio, 0) <= 0.9;

-- Of the blocks that were evicted many are stored again; not where it was so the day before.
CREATE OR REPLACE MACRO alert_regret(asked_at) AS TABLE
WITH told AS (
    SELECT
        coalesce(model, told_model, '') AS model, b.replica,
        minute >= asked_at - alert_seconds('PrefixcacheEvictionRegret') AS is_now,
        evicted_blocks, list_sum(map_values(evicted_reuse_gap)) AS wanted_blocks
    FROM block_minutes AS b
    LEFT JOIN told_models USING (replica)
    WHERE
        tier = 'device' AND minute < asked_at AND minute >= asked_at - INTERVAL 25 HOUR
        AND (is_now OR minute < asked_at - INTERVAL 23 HOUR)
),

shares AS (
    SELECT
        model, replica, is_now, total(evicted_blocks) AS evicted,
        ratio(total(wanted_blocks), total(evicted_blocks)) AS regret_ratio
    FROM told
    GROUP BY ALL
    HAVING total(evicted_blocks) > CASE WHEN is_now THEN 300 ELSE 200 END
)

SELECT
    'PrefixcacheEvictionRegret' AS alert, model, replica,
    asked_at - alert_seconds('PrefixcacheEvictionRegret') AS since,
    regret_ratio AS value,
    percent_text(regret_ratio) || ' of ' || said_count(evicted)
    || ' blocks evicted in 45 minutes were stored again.' AS description
FROM shares AS now
WHERE
    is_now AND regret_ratio > alert_threshold('PrefixcacheEvictionRegret')
    AND model NOT IN (SELECT model FROM shares WHERE NOT is_now AND regret_ratio > 0.25);

-- As offload_verdict says it without knowing ranks; no row where it cannot be told.
CREATE OR REPLACE MACRO alert_offload(asked_at) AS TABLE
WITH facts AS (
    SELECT *, sum(gained_seconds) FILTER (gain = 'gain') OVER (PARTITION BY value) AS all_gained
    FROM offload_facts(
        'model', asked_at - INTERVAL 24 HOUR, asked_at, NULL::VARCHAR, NULL::VARCHAR, 0.05
    )
)

SELECT
    'PrefixcacheOffloadNotPaying' AS alert, value AS model, tier AS subject,
    asked_at - INTERVAL 24 HOUR AS since,
    0::DOUBLE AS value,
    'tier ' || tier || ': over the last 24 hours loads from it did not pay. The question'
    || ' offload_verdict has the figures.' AS description
FROM facts
WHERE gain = 'none' OR (gain = 'gain' AND lost_seconds >= all_gained);

-- Compared with the model's other replicas at the same time; not where its cache was just lost. Its
-- own tokens are left out of what it is compared with, else the busiest could never be found.
CREATE OR REPLACE MACRO alert_outliers(asked_at) AS TABLE
WITH counted AS (
    FROM alert_counted(asked_at - alert_seconds('PrefixcacheReplicaOutlier'), asked_at)
),

rated AS (
    SELECT
        *,
        counter_ratio(cached_tokens, prompt_tokens) AS hit_ratio,
        sum(prompt_tokens) OVER model_replicas - prompt_tokens AS others_tokens,
        ratio(sum(cached_tokens) OVER model_replicas - cached_tokens, others_tokens)
            AS others_ratio
    FROM counted
    WHERE prompt_tokens > 0
    WINDOW model_replicas AS (PARTITION BY model)
)

SELECT
    'PrefixcacheReplicaOutlier' AS alert, model, replica,
    asked_at - alert_seconds('PrefixcacheReplicaOutlier') AS since,
    hit_ratio / others_ratio AS value,
    'token hit ratio ' || percent_text(hit_ratio) || ', the other replicas of the model '
    || percent_text(others_ratio) || '.' AS description
FROM rated
WHERE
    prompt_tokens > 75000 AND others_tokens > 75000 AND others_ratio > 0.1
    AND hit_ratio < alert_threshold('PrefixcacheReplicaOutlier') * others_ratio
    AND replica NOT IN (
        SELECT replica FROM engine_own
        WHERE reset AND ts > asked_at - INTERVAL 1 HOUR AND ts <= asked_at
    );

-- Of counters and requests, which tell of the same tokens, the larger.
CREATE OR REPLACE MACRO alert_stale(asked_at) AS TABLE
WITH found AS (
    SELECT 'requests' AS evidence, model, reason, sum(tokens) AS tokens
    FROM stale_reads(asked_at - INTERVAL 1 HOUR, asked_at, NULL::VARCHAR, NULL::VARCHAR)
    GROUP BY ALL
    UNION ALL
    SELECT 'counters', model, reason, sum(tokens)
    FROM stale_loads(asked_at - INTERVAL 1 HOUR, asked_at, NULL::VARCHAR, NULL::VARCHAR)
    WHERE NOT shared
    GROUP BY ALL
)

SELECT
    CASE
        WHEN reason IN ('model_fingerprint', 'adapter') THEN 'PrefixcacheStaleReuse'
        ELSE 'PrefixcacheStaleReuseLikely'
    END AS alert,
    model, reason AS subject,
    asked_at - INTERVAL 1 HOUR AS since,
    tokens AS value,
    said_count(tokens) || ' cached tokens of the last hour, reason ' || reason
    || '. The question stale_reuse has the evidence.' AS description
FROM (SELECT model, reason, max(tokens) AS tokens FROM found GROUP BY ALL)
WHERE reason NOT IN ('engine_start', 'before_log');

-- By the minutes that were sealed: of live rows and of those that came late.
CREATE OR REPLACE MACRO alert_crossed(asked_at) AS TABLE
SELECT
    'PrefixcacheCrossScopeReuse' AS alert, model, replica, since, tokens AS value,
    'At least ' || said_count(tokens) || ' cached tokens within an hour had been computed in another '
    || 'scope and not in the request''s own. The question cross_scope_reuse has them by tenant.'
        AS description
FROM (
    SELECT
        coalesce(model, '') AS model, coalesce(replica, '') AS replica,
        min(minute) FILTER (reused_at_least_tokens > 0) AS since,
        sum(reused_at_least_tokens) AS tokens
    FROM cross_scope_minutes
    WHERE minute > asked_at - INTERVAL 1 HOUR AND minute <= asked_at
    GROUP BY ALL
)
WHERE tokens >= alert_threshold('PrefixcacheCrossScopeReuse');

-- Where events tell of a replica they tell of its resets, else its page does.
CREATE OR REPLACE MACRO alert_resets(asked_at) AS TABLE
WITH resets AS (
    SELECT DISTINCT ts, coalesce(model, told_model, '') AS model, replica
    FROM block_resets
    LEFT JOIN told_models USING (replica)
    WHERE ts > asked_at - INTERVAL 1 HOUR AND ts <= asked_at
    UNION ALL
    SELECT DISTINCT ts, coalesce(model, ''), replica
    FROM engine_own
    WHERE
        reset AND ts > asked_at - INTERVAL 1 HOUR AND ts <= asked_at
        AND replica NOT IN (SELECT replica FROM told_caches)
)

SELECT
    'PrefixcacheResetStorm' AS alert, model, replica,
    since,
    resets AS value,
    format('{} resets within an hour.', resets) AS description
FROM (
    SELECT model, replica, min(ts) AS since, count(*) AS resets FROM resets GROUP BY ALL
)
WHERE resets >= alert_threshold('PrefixcacheResetStorm');

-- What the last scrapes said; nothing of a time long before or after them. A metric is missing since
-- the process that serves the page began, as far as a day of pages tells; a page without any sample is
-- not waited for.
CREATE OR REPLACE MACRO alert_targets(asked_at) AS TABLE
WITH scraped AS (
    SELECT * FROM targets
    WHERE last_attempt > asked_at - INTERVAL 15 MINUTE AND last_attempt <= asked_at + INTERVAL 1 MINUTE
),

pages AS (
    SELECT
        target,
        coalesce(max(ts) FILTER (reset), min(coalesce(since, ts))) AS began
    FROM engine_samples
    WHERE ts > asked_at - INTERVAL 1 DAY AND ts <= asked_at
    GROUP BY ALL
)

SELECT
    'PrefixscopeTargetDown' AS alert, target AS subject,
    coalesce(last_success, last_attempt) AS since,
    0::DOUBLE AS value,
    target || ' does not answer: its part of every engine figure is missing.' AS description
FROM scraped
WHERE up = false
UNION ALL
SELECT
    'PrefixscopeMetricMissing', concat(target, ' ', metric),
    coalesce(began, last_attempt - alert_seconds('PrefixscopeMetricMissing')), 1::DOUBLE,
    target || ' has no ' || metric || ': figures from it are unknown, not 0.'
FROM (SELECT target, last_attempt, up, unnest(missing_metrics) AS metric FROM scraped)
LEFT JOIN pages USING (target)
WHERE up;

-- No row comes though engines compute, or, where no engine is known, though many came at this hour of
-- the day before (and of the week before, as far as that is known); or rows come too late to be counted
-- while few come in time.
CREATE OR REPLACE MACRO alert_lag(asked_at) AS TABLE
WITH arrivals AS (
    SELECT
        total(CASE WHEN is_now AND NOT late THEN prompt_tokens END) AS punctual_tokens,
        total(CASE WHEN is_now AND late THEN prompt_tokens END) AS late_tokens,
        total(CASE WHEN NOT is_now AND NOT late THEN prompt_tokens END) AS usual_tokens
    FROM (
        SELECT
            arrived, prompt_tokens, arrived - ts > INTERVAL 10 MINUTE AS late,
            arrived > asked_at - INTERVAL 30 MINUTE AS is_now
        FROM requests
        WHERE arrived <= asked_at AND (
            arrived > asked_at - INTERVAL 30 MINUTE
            OR arrived BETWEEN asked_at - INTERVAL 1470 MINUTE AND asked_at - INTERVAL 1 DAY
        )
    )
),

newest AS (
    SELECT max(arrived) AS arrived, epoch(asked_at - max(arrived)) AS lag_seconds
    FROM requests
    WHERE arrived <= asked_at
),

usual AS (
    SELECT
        total(CASE WHEN ts >= asked_at - INTERVAL 25 HOUR THEN prompt_tokens END) AS day_tokens,
        total(CASE
            WHEN ts >= asked_at - INTERVAL 169 HOUR AND ts < asked_at - INTERVAL 7 DAY
                THEN prompt_tokens
        END) AS week_tokens,
        coalesce(bool_or(ts < asked_at - INTERVAL 7 DAY), false) AS week_is_known
    FROM traffic
    WHERE
        answers(kept_as, NULL, NULL)
        AND ts >= asked_at - INTERVAL 9 DAY AND ts < asked_at - INTERVAL 1 DAY
),

computed AS (
    SELECT sum(prompt_tokens) AS prompt_tokens
    FROM alert_counted(asked_at - INTERVAL 15 MINUTE, asked_at)
),

silence AS (
    SELECT
        arrived, lag_seconds,
        CASE
            WHEN computed.prompt_tokens > 50000 AND lag_seconds < 86400
                THEN 'and engines computed meanwhile.'
            WHEN
                computed.prompt_tokens IS NULL AND day_tokens > 50000
                AND NOT (week_is_known AND week_tokens <= 50000)
                THEN 'and at this hour of the day before there were ' || said_count(day_tokens)
                    || ' prompt tokens.'
        END AS sign
    FROM newest, computed, usual
    WHERE lag_seconds > alert_threshold('PrefixscopeLagging')
)

SELECT
    'PrefixscopeLagging' AS alert, arrived AS since, lag_seconds AS value,
    format('no request row arrived for {} minutes, {}', (lag_seconds / 60)::BIGINT, sign)
        AS description
FROM silence
WHERE sign IS NOT NULL
UNION ALL
SELECT
    'PrefixscopeLagging', asked_at - INTERVAL 30 MINUTE, lag_seconds,
    said_count(late_tokens) || ' prompt tokens of half an hour came more than 10 minutes late, '
    || said_count(punctual_tokens) || ' in time.'
FROM arrivals, newest
WHERE
    late_tokens > punctual_tokens AND usual_tokens > 50000 AND punctual_tokens < 0.5 * usual_tokens
    AND NOT EXISTS (FROM silence WHERE sign IS NOT NULL);

CREATE OR REPLACE MACRO alert_rejects(asked_at) AS TABLE
WITH came AS (
    SELECT source, count(*) AS accepted, 0 AS rejected
    FROM requests
    WHERE arrived > asked_at - alert_seconds('PrefixscopeRejecting') AND arrived <= asked_at
    GROUP BY ALL
    UNION ALL
    SELECT source, 0, count(*)
    FROM rejects
    WHERE arrived > asked_at - alert_seconds('PrefixscopeRejecting') AND arrived <= asked_at
    GROUP BY ALL
)

SELECT
    'PrefixscopeRejecting' AS alert, source AS subject,
    asked_at - alert_seconds('PrefixscopeRejecting') AS since,
    rejected / (accepted + rejected) AS value,
    source || ': ' || percent_text(value) || ' of its rows could not be read.' AS description
FROM (SELECT source, sum(accepted) AS accepted, sum(rejected) AS rejected FROM came GROUP BY source)
WHERE
    accepted + rejected > 40 AND rejected > alert_threshold('PrefixscopeRejecting') * (accepted + rejected);

-- Names of the last day that got no series of their own and were not there the day before.
CREATE OR REPLACE MACRO alert_folded(asked_at) AS TABLE
WITH named AS (
    UNPIVOT (
        SELECT
            ts >= asked_at - INTERVAL 1 DAY AS is_now, model, route, template, tenant
        FROM requests
        WHERE ts >= asked_at - INTERVAL 2 DAY AND ts < asked_at
    ) ON model, route, template, tenant INTO NAME label VALUE value
),

new AS (
    SELECT label, value
    FROM named
    GROUP BY ALL
    HAVING bool_and(is_now)
)

SELECT
    'PrefixscopeLabelsFolded' AS alert, label AS subject,
    asked_at - INTERVAL 1 DAY AS since,
    names AS value,
    format('{} values of {} that were not there a day ago are counted as `other`.', names, label)
        AS description
FROM (
    SELECT label, count(*) AS names
    FROM new
    ANTI JOIN label_values USING (label, value)
    GROUP BY label
)
WHERE names > alert_threshold('PrefixscopeLabelsFolded');
