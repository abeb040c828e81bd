/*
name: alerts
question: What is wrong now that somebody should act on?
grain: one row per alert and what it is about; with all one more for every alert of this part that is silent
params:
  until: {type: TIMESTAMP, default: null, required: true, meaning: "The moment to judge."}
  part: {type: VARCHAR, default: rest, one_of: [rest, route, template, tenant, stale], meaning: "route, template or tenant: drops of each of them; stale: whether stale KV was reused, which reads all that is kept of it and takes longer than all others; rest: drops of models and all other alerts."}
  all: {type: BIGINT, default: 0, meaning: "1: also a row for every alert that is not firing."}
  window_seconds: {type: BIGINT, default: 3600, meaning: "Length of the window in which drops are judged."}
  zone: {type: VARCHAR, default: UTC, meaning: "Time zone whose hours of the week are compared, like Europe/Berlin."}
  min_tokens: {type: BIGINT, default: 20000, meaning: "Windows with fewer reported prompt tokens are not judged for drops."}
  min_requests: {type: BIGINT, default: 30, meaning: "Windows with fewer reported requests are not judged for drops."}
  model: {type: VARCHAR, default: null, meaning: "Only alerts of this model, and those of none."}
columns:
  alert: {type: VARCHAR, unit: name, meaning: "Name, as in deploy/prometheus/prefixscope.rules.yml."}
  severity: {type: VARCHAR, unit: name, meaning: "page or ticket, as there."}
  state: {type: VARCHAR, unit: name, meaning: "firing; pending (a target that has not answered for less than 5 minutes, a metric missing or rows staying away for less than 30); with all also inactive, or unknown where nothing in the store could tell."}
  since: {type: TIMESTAMP, unit: time, meaning: "From when on it is known to be so: the start of the window that showed it. Of a drop the minute it began, looked for in six windows, or what the exporter kept of a longer one; where no ratio tells, the first of up to six windows without a break."}
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
-- `until` is pasted into every part: as a constant it costs nothing, as a subquery most of the time.
-- So do dimensions one by one instead of beside each other. What is not asked for is not worked out.
WITH rest AS (
    FROM alert_collapses(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_frozen(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_coverage(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_saturated(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_regret(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_offload(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_outliers(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_crossed(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_resets(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_targets(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_lag(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_rejects(getvariable('until')::TIMESTAMP)
    UNION ALL BY NAME FROM alert_folded(getvariable('until')::TIMESTAMP)
),

asked AS (
    SELECT
        getvariable('until')::TIMESTAMP AS moment,
        coalesce(getvariable('part'), 'rest') AS part
),

found AS (
    FROM rest
    WHERE coalesce(getvariable('part'), 'rest') = 'rest'
    UNION ALL BY NAME
    FROM alert_drops(
        CASE WHEN getvariable('part') NOT IN ('rest', 'stale') THEN getvariable('part') END,
        getvariable('until')::TIMESTAMP,
        coalesce(getvariable('window_seconds'), 3600), coalesce(getvariable('zone'), 'UTC'),
        coalesce(getvariable('min_tokens'), 20000), coalesce(getvariable('min_requests'), 30),
        getvariable('model')
    )
    WHERE coalesce(getvariable('part'), 'rest') <> 'stale'
    UNION ALL BY NAME
    FROM alert_stale(getvariable('until')::TIMESTAMP)
    WHERE getvariable('part') = 'stale'
),

-- What there is to tell by.
heard AS (
    SELECT
        moment, part,
        EXISTS (FROM requests WHERE ts < moment AND ts > moment - INTERVAL 1 DAY) AS rows_came,
        EXISTS (FROM engine_own WHERE ts <= moment AND ts > moment - INTERVAL 1 DAY) AS pages_came,
        EXISTS (FROM block_minutes WHERE minute < moment AND minute > moment - INTERVAL 1 DAY)
            AS events_came,
        EXISTS (FROM targets) AS targets_known,
        EXISTS (
            FROM cross_scope_minutes
            WHERE minute <= moment AND minute > moment - INTERVAL 1 DAY AND checked_requests > 0
        ) AS scopes_checked
    FROM asked
),

stated AS (
    SELECT
        rules.* RENAME (alert AS name), found.*,
        CASE
            WHEN name IN ('PrefixcachePeakHitDrop', 'PrefixcacheHitDrop') THEN rows_came OR pages_came
            WHEN name IN ('PrefixscopeTargetDown', 'PrefixscopeMetricMissing') THEN targets_known
            WHEN name = 'PrefixcacheEvictionRegret' THEN events_came
            WHEN name = 'PrefixcacheCrossScopeReuse' THEN scopes_checked
            WHEN name = 'PrefixcacheResetStorm' THEN pages_came OR events_came
            WHEN name IN (
                'PrefixcacheHitsFrozen', 'PrefixcacheKvSaturated', 'PrefixcacheReplicaOutlier',
                'PrefixcacheOffloadNotPaying'
            ) THEN pages_came
            ELSE rows_came
        END AS can_be_told,
        CASE
            WHEN
                name IN (
                    'PrefixscopeTargetDown', 'PrefixscopeMetricMissing', 'PrefixscopeLagging'
                )
                AND since > moment - to_seconds(holds_seconds)
                THEN 'pending'
            WHEN found.alert IS NOT NULL THEN 'firing'
            WHEN can_be_told THEN 'inactive'
            ELSE 'unknown'
        END AS state
    FROM alert_rules AS rules
    LEFT JOIN found
        ON found.alert = rules.alert
        AND (getvariable('model') IS NULL OR coalesce(found.model = getvariable('model'), true))
    CROSS JOIN heard
    WHERE
        part = CASE WHEN starts_with(rules.alert, 'PrefixcacheStale') THEN 'stale' ELSE 'rest' END
        OR found.alert IS NOT NULL
)

SELECT
    name AS alert, severity, state, since, model, route, template, tenant, replica,
    subject, summary, description,
    'docs/runbooks/' || name || '.md' AS runbook,
    value, threshold::DOUBLE AS threshold
FROM stated
WHERE stated.alert IS NOT NULL OR coalesce(getvariable('all'), 0) = 1
ORDER BY
    list_position(['firing', 'pending', 'inactive', 'unknown'], state), severity,
    name, model, route, template, tenant, replica, subject;
