/*
name: version_changes
question: When did a template, a model or an engine come in another version than before?
grain: one row per version first seen in the window where another was seen in the four weeks before; latest first
params:
  route: {type: VARCHAR, default: null, meaning: "Only this route; engines are left out."}
  template: {type: VARCHAR, default: null, meaning: "Only this template; engines are left out."}
  tenant: {type: VARCHAR, default: null, meaning: "Only this tenant; engines are left out."}
filters: [since, until, model, replica]
columns:
  ts: {type: TIMESTAMP, unit: time, meaning: "First request or sample of the version, UTC."}
  kind: {type: VARCHAR, unit: name, meaning: "template (its version), model (its fingerprint) or engine (the program of a replica)."}
  subject: {type: VARCHAR, unit: name, meaning: "Template, model or replica; '' if not given."}
  version: {type: VARCHAR, unit: name, meaning: "The version that came."}
  version_before: {type: VARCHAR, unit: name, meaning: "The one first seen before it."}
*/
WITH logged AS (
    SELECT
        ts, coalesce(model, '') AS model, model_fingerprint,
        coalesce(template, '') AS template, template_version
    FROM requests
    WHERE
        in_window(
            ts, getvariable('since')::TIMESTAMP - INTERVAL 28 DAY, getvariable('until')::TIMESTAMP
        )
        AND replica_role IS DISTINCT FROM 'decode'
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(coalesce(replica, ''), getvariable('replica'))
        AND matches(coalesce(route, ''), getvariable('route'))
        AND matches(coalesce(template, ''), getvariable('template'))
        AND matches(coalesce(tenant, ''), getvariable('tenant'))
),

firsts AS (
    SELECT 'template' AS kind, template AS subject, template_version AS version, min(ts) AS ts
    FROM logged
    WHERE template_version IS NOT NULL
    GROUP BY ALL
    UNION ALL
    SELECT 'model' AS kind, model AS subject, model_fingerprint AS version, min(ts) AS ts
    FROM logged
    WHERE model_fingerprint IS NOT NULL
    GROUP BY ALL
    UNION ALL
    SELECT 'engine' AS kind, replica AS subject, version, min(ts) AS ts
    FROM engine_own
    WHERE
        version IS NOT NULL
        AND coalesce(
            getvariable('route'), getvariable('template'), getvariable('tenant')
        ) IS NULL
        AND in_window(
            ts, getvariable('since')::TIMESTAMP - INTERVAL 28 DAY, getvariable('until')::TIMESTAMP
        )
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(replica, getvariable('replica'))
    GROUP BY ALL
),

followed AS (
    SELECT *, lag(version) OVER (PARTITION BY kind, subject ORDER BY ts, version) AS version_before
    FROM firsts
)

SELECT ts, kind, subject, version, version_before
FROM followed
WHERE
    version_before IS NOT NULL
    AND in_window(ts, getvariable('since'), getvariable('until'))
ORDER BY ts DESC, kind, subject, version;
