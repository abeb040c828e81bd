-- Why tokens missed, as the exporter named it minute by minute (exporter.causes).

-- Both roll-ups as one: minutes keep the replica, hours template and tenant. A question takes one of
-- them (macro `causes_answer`), never both. A dimension that a roll-up does not keep is NULL, one
-- that was not given ''.
CREATE OR REPLACE VIEW cause_sums AS
SELECT
    minute AS ts, 'minute' AS kept_as,
    coalesce(model, '') AS model, coalesce(replica, '') AS replica, coalesce(route, '') AS route,
    NULL::VARCHAR AS template, NULL::VARCHAR AS tenant,
    * EXCLUDE (minute, model, replica, route)
FROM cause_minutes
UNION ALL BY NAME
SELECT
    hour AS ts, 'hour' AS kept_as,
    coalesce(model, '') AS model, NULL::VARCHAR AS replica, coalesce(route, '') AS route,
    coalesce(template, '') AS template, coalesce(tenant, '') AS tenant,
    * EXCLUDE (hour, model, route, template, tenant)
FROM cause_hours;

-- Hours answer where template or tenant is asked for, minutes otherwise. Nothing is kept of a
-- replica's templates or tenants, so asking for both has no rows.
CREATE OR REPLACE MACRO causes_answer(kept_as, dimension, wanted_template, wanted_tenant) AS
    kept_as = CASE
        WHEN
            coalesce(dimension, '') IN ('template', 'tenant')
            OR wanted_template IS NOT NULL OR wanted_tenant IS NOT NULL
            THEN 'hour'
        ELSE 'minute'
    END;

-- The sums that a question about causes is of, `value` being that of the dimension it asks by.
CREATE OR REPLACE MACRO asked_causes(
    dimension, since, until, wanted_model, wanted_replica, wanted_route, wanted_template,
    wanted_tenant
) AS TABLE
SELECT
    *,
    log_dimension(dimension, model, replica, route, template, tenant) AS value
FROM cause_sums
WHERE
    in_window(ts, since, until)
    AND causes_answer(kept_as, dimension, wanted_template, wanted_tenant)
    AND matches(model, wanted_model)
    AND matches(replica, wanted_replica)
    AND matches(route, wanted_route)
    AND matches(template, wanted_template)
    AND matches(tenant, wanted_tenant);

-- What missed by cause, of all rows of `parts`, those of 0 tokens included.
CREATE OR REPLACE MACRO cause_totals(parts) AS [
    {'cause': 'unserved', 'tokens': total(parts.unserved_tokens)},
    {'cause': 'evicted', 'tokens': total(parts.evicted_tokens)},
    {'cause': 'expired', 'tokens': total(parts.expired_tokens)},
    {'cause': 'reset', 'tokens': total(parts.reset_tokens)},
    {'cause': 'routed', 'tokens': total(parts.routed_tokens)},
    {'cause': 'concurrent', 'tokens': total(parts.concurrent_tokens)},
    {'cause': 'isolated', 'tokens': total(parts.isolated_tokens)},
    {'cause': 'redeployed', 'tokens': total(parts.redeployed_tokens)},
    {'cause': 'layout', 'tokens': total(parts.layout_tokens)},
    {'cause': 'new', 'tokens': total(parts.new_tokens)},
    {'cause': 'rounding', 'tokens': total(parts.rounding_tokens)},
    {'cause': 'ineligible', 'tokens': total(parts.ineligible_tokens)},
    {'cause': 'unexplained', 'tokens': total(parts.unexplained_tokens)}
];
