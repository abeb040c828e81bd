/*
name: cross_scope_reuse
question: Was anything reused across a trust boundary, and where?
grain: one row per model and replica whose requests were looked at (scope NULL), and one per scope and tenant of which something was found; most tokens first
filters: [since, until, model, replica]
columns:
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  replica: {type: VARCHAR, unit: name, meaning: "Replica, '' if not given."}
  scope: {type: VARCHAR, unit: name, meaning: "Keyed hash of the trust boundary of the requests, '' if there is none; NULL: all of the replica."}
  tenant: {type: VARCHAR, unit: name, meaning: "Their tenant, '' if not given; NULL: all."}
  likely_other_tenants: {type: VARCHAR, unit: name, meaning: "Who uses the scope that most often was the first to compute what this one sends too, by the last audit of hot rows (isolation). NULL where that has none."}
  checked_requests: {type: BIGINT, unit: requests, meaning: "Requests with a cached count and a chain of which it can be told."}
  checked_cached_tokens: {type: BIGINT, unit: tokens, meaning: "Their cached tokens."}
  reused_requests: {type: BIGINT, unit: requests, meaning: "Requests that reused what only another scope had computed."}
  reused_at_least_tokens: {type: BIGINT, unit: tokens, meaning: "Cached tokens that another scope had computed and no request of the own scope can have supplied. Exact but for caches that reuse less than a block of 16 tokens."}
  reused_at_most_tokens: {type: BIGINT, unit: tokens, meaning: "The same with all that the own scope is not known to have supplied: less than 16 tokens a request more."}
  cannot_tell_requests: {type: BIGINT, unit: requests, meaning: "Requests with more cached tokens than their scope is known to have had, of which nobody can tell whose they were: less than the horizon is known of the replica (causes.horizon_days, or since a reset), or nobody known had them. They are told by replica alone."}
  cannot_tell_tokens: {type: BIGINT, unit: tokens, meaning: "Those tokens."}
  last_ts: {type: TIMESTAMP, unit: time, meaning: "Last minute with such reuse, UTC; NULL where there was none."}
*/
WITH selected AS (
    SELECT
        * REPLACE (
            coalesce(model, '') AS model, coalesce(replica, '') AS replica,
            CASE WHEN found THEN coalesce(scope, '') END AS scope,
            CASE WHEN found THEN coalesce(tenant, '') END AS tenant
        )
    FROM cross_scope_minutes
    WHERE
        in_window(minute, getvariable('since'), getvariable('until'))
        AND matches(coalesce(model, ''), getvariable('model'))
        AND matches(coalesce(replica, ''), getvariable('replica'))
),

grouped AS (
    SELECT * REPLACE (NULL AS scope, NULL AS tenant) FROM selected
    UNION ALL
    SELECT * FROM selected WHERE found
),

likely AS (
    SELECT model, scope, arg_max(other_tenants, merged_tokens) AS other_tenants
    FROM scope_pairs
    WHERE merged_tokens > 0
    GROUP BY model, scope
)

SELECT
    g.model, g.replica, g.scope, g.tenant,
    any_value(likely.other_tenants) AS likely_other_tenants,
    sum(checked_requests)::BIGINT AS checked_requests,
    sum(checked_cached_tokens)::BIGINT AS checked_cached_tokens,
    sum(reused_requests)::BIGINT AS reused_requests,
    sum(reused_at_least_tokens)::BIGINT AS reused_at_least_tokens,
    sum(reused_at_most_tokens)::BIGINT AS reused_at_most_tokens,
    sum(cannot_tell_requests)::BIGINT AS cannot_tell_requests,
    sum(cannot_tell_tokens)::BIGINT AS cannot_tell_tokens,
    max(minute) FILTER (reused_requests > 0) AS last_ts
FROM grouped AS g
LEFT JOIN likely ON likely.model = g.model AND likely.scope = g.scope
GROUP BY g.model, g.replica, g.scope, g.tenant
ORDER BY
    reused_at_least_tokens DESC, cannot_tell_tokens DESC, g.model, g.replica,
    g.scope NULLS FIRST, g.tenant;
