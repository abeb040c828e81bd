/*
name: alerts
question: What is wrong now that somebody should act on?
grain: one row per alert and what it is about; with all one more for every alert of this part that is silent
params:
  until: {type: TIMESTAMP, default: null, meaning: "The moment to judge; that of the newest row, page or scrape if not set."}
  part: {type: VARCHAR, default: rest, one_of: [rest, stale], meaning: "stale: whether stale KV was reused, which reads all that is kept of it and takes longer than all others; rest: these."}
  all: {type: BIGINT, default: 0, meaning: "1: also a row for every alert that is not firing."}
  window_seconds: {type: BIGINT, default: 3600, meaning: "Length of the window in which drops are judged."}
  zone: {type: VARCHAR, default: UTC, meaning: "Time zone whose hours of the week are compared, like Europe/Berlin."}
  min_tokens: {type: BIGINT, default: 20000, meaning: "Windows with fewer reported prompt tokens are not judged for drops."}
  min_requests: {type: BIGINT, default: 30, meaning: "Windows with fewer reported requests are not judged for drops."}
  model: {type: VARCHAR, default: null, meaning: "Only alerts of this model, and those of none."}
columns:
  alert: {type: VARCHAR, unit: name, meaning: "Name, as in deploy/prometheus/prefixscope.rules.yml."}
  severity: {type: VARCHAR, unit: name, meaning: "page or ticket, as there."}
  state: {type: VARCHAR, unit: name, meaning: "firing; pending (a target that has not answered for less than 5 minutes); with all also inactive, or unknown where nothing in the store could tell."}
  since: {type: TIMESTAMP, unit: time, meaning: "From when on it is known to be so: the start of the window that showed it, of a drop the first of up to six windows without a break."}
  model: {type: VARCHAR, unit: name, meaning: "Model it is about, NULL if none, '' if not given."}
  route: {type: VARCHAR, unit: name, meaning: "Route likewise."}
  template: {type: VARCHAR, unit: name, meaning: "Template likewise."}
  tenant: {type: VARCHAR, unit: name, meaning: "Tenant likewise."}
  replica: {type: VARCHAR, unit: name, meaning: "Replica likewise."}
  subject: {type: VARCHAR, unit: name, meaning: "What else tells it from others of its name: basis of a drop, target (and metric), source, label, tier or reason."}
  summary: {type: VARCHAR, unit: text, meaning: "What the alert means."}
  description: {type: VARCHAR, unit: text, meaning: "The figures; of a drop its class too, which changes neither alert nor labels."}
  runbook: {type: VARCHAR, unit: text, meaning: "Page that says what to do."}
  value: {type: DOUBLE, unit: number, meaning: "What was compared."}
  threshold: {type: DOUBLE, unit: number, meaning: "With what; NULL for drops, whose threshold is what chance and load explain."}
*/
WITH asked AS (
    SELECT coalesce(
        getvariable('until')::TIMESTAMP,
        greatest(
            (SELECT max(ts) FROM requests), (SELECT max(ts) FROM engine_own),
            (SELECT max(last_attempt) FROM targets)
        ) + INTERVAL 1 MICROSECOND
    ) AS moment
),

found AS (
    FROM alert_drops(
        (SELECT moment FROM asked),
        coalesce(getvariable('window_seconds'), 3600), coalesce(getvariable('zone'), 'UTC'),
        coalesce(getvariable('min_tokens'), 20000), coalesce(getvariable('min_requests'), 30),
        getvariable('model')
    )
    UNION ALL BY NAME FROM alert_collapses((SELECT moment FROM asked))
    UNION ALL BY NAME FROM alert_frozen((SELECT moment FROM asked))
    UNION ALL BY NAME FROM alert_coverage((SELECT moment FROM asked))
    UNION ALL BY NAME FROM alert_saturated((SELECT moment FROM asked))
    UNION ALL BY NAME FROM alert_regret((SELECT moment FROM asked))
    UNION ALL BY NAME FROM alert_offload((SELECT moment FROM asked))
    UNION ALL BY NAME FROM alert_outliers((SELECT moment FROM asked))
    UNION ALL BY NAME FROM alert_resets((SELECT moment FROM asked))
    UNION ALL BY NAME FROM alert_targets((SELECT moment FROM asked))
    UNION ALL BY NAME FROM alert_lag((SELECT moment FROM asked))
    UNION ALL BY NAME FROM alert_rejects((SELECT moment FROM asked))
    UNION ALL BY NAME FROM alert_folded((SELECT moment FROM asked))
),

-- The part that is not asked for is not worked out.
wanted AS (
    FROM found
    WHERE coalesce(getvariable('part'), 'rest') = 'rest'
    UNION ALL BY NAME
    FROM alert_stale((SELECT moment FROM asked))
    WHERE getvariable('part') = 'stale'
),

-- What there is to tell by.
heard AS (
    SELECT
        moment,
        EXISTS (FROM requests WHERE ts < moment AND ts > moment - INTERVAL 1 DAY) AS rows_came,
        EXISTS (FROM engine_own WHERE ts <= moment AND ts > moment - INTERVAL 1 DAY) AS pages_came,
        EXISTS (FROM block_minutes WHERE minute < moment AND minute > moment - INTERVAL 1 DAY)
            AS events_came,
        EXISTS (FROM targets) AS targets_known
    FROM asked
),

stated AS (
    SELECT
        rules.* RENAME (alert AS name), wanted.*,
        CASE
            WHEN name IN ('PrefixcachePeakHitDrop', 'PrefixcacheHitDrop') THEN rows_came OR pages_came
            WHEN name IN ('PrefixscopeTargetDown', 'PrefixscopeMetricMissing') THEN targets_known
            WHEN name = 'PrefixcacheEvictionRegret' THEN events_came
            WHEN name = 'PrefixcacheResetStorm' THEN pages_came OR events_came
            WHEN name IN (
                'PrefixcacheHitsFrozen', 'PrefixcacheKvSaturated', 'PrefixcacheReplicaOutlier',
                'PrefixcacheOffloadNotPaying'
            ) THEN pages_came
            ELSE rows_came
        END AS can_be_told,
        CASE
            WHEN name = 'PrefixscopeTargetDown' AND since > moment - to_seconds(holds_seconds)
                THEN 'pending'
            WHEN wanted.alert IS NOT NULL THEN 'firing'
            WHEN can_be_told THEN 'inactive'
            ELSE 'unknown'
        END AS state
    FROM alert_rules AS rules
    LEFT JOIN wanted
        ON wanted.alert = rules.alert
        AND (getvariable('model') IS NULL OR coalesce(wanted.model = getvariable('model'), true))
    CROSS JOIN heard
    WHERE
        coalesce(getvariable('part'), 'rest') = CASE
            WHEN starts_with(rules.alert, 'PrefixcacheStale') THEN 'stale' ELSE 'rest'
        END
)

SELECT
    name AS alert, severity, state, since, model, route, template, NULL::VARCHAR AS tenant, replica,
    subject, summary, description,
    'docs/runbooks/' || name || '.md' AS runbook,
    value, threshold::DOUBLE AS threshold
FROM stated
WHERE stated.alert IS NOT NULL OR coalesce(getvariable('all'), 0) = 1
ORDER BY
    list_position(['firing', 'pending', 'inactive', 'unknown'], state), severity,
    name, model, route, template, replica, subject;
