-- What is told of drops, for the questions peak_drop and alerts. A cause that ends leaves a cold cache
-- behind: the drop goes on for a while, and nothing is in evidence any more. It keeps its class, and
-- is told as no more severe, while
-- - each window since is low, a drop or explained by load, without a break,
-- - no cause is in evidence, which would speak for itself, and
-- - the ratio comes no further below the usual one of these hours than it was the window before,
--   chance apart: a fall that is new is judged for itself.
-- At most six windows. A drop that never had a cause in evidence is judged for itself always.
CREATE OR REPLACE MACRO judged_drops(
    dimension, since_border, until_border, window_seconds, zone, least_tokens, least_requests,
    wanted_model, wanted_route, wanted_template, wanted_tenant
) AS TABLE
WITH alone AS (
    SELECT
        *, class IS NOT NULL AS is_low, drop_ratio + load_part_ratio AS below_usual_ratio
    FROM drops_alone(
        dimension, since_border, until_border, window_seconds, zone, least_tokens, least_requests,
        wanted_model, wanted_route, wanted_template, wanted_tenant
    )
),

steps AS (
    SELECT
        *,
        coalesce(
            is_low AND NOT (is_drop AND cause IS NOT NULL)
            AND lag(is_low) OVER earlier AND lag(place) OVER earlier = place + 1
            AND below_usual_ratio <= lag(below_usual_ratio) OVER earlier + noise_ratio,
            false
        ) AS goes_on
    FROM alone
    WINDOW earlier AS (PARTITION BY basis, model, value ORDER BY place DESC)
),

stretches AS (
    SELECT
        *,
        count(*) FILTER (NOT goes_on) OVER (
            PARTITION BY basis, model, value ORDER BY place DESC
        ) AS stretch
    FROM steps
),

told AS (
    SELECT
        *,
        coalesce(
            is_drop AND goes_on AND first_value(is_drop AND cause IS NOT NULL) OVER since_cause
            AND first_value(place) OVER since_cause <= place + 6,
            false
        ) AS is_recovering,
        first_value(class) OVER since_cause AS first_class,
        first_value(evidence) OVER since_cause AS first_evidence,
        bool_or(severity = 'ticket') OVER since_cause AS was_ticket
    FROM stretches
    WINDOW since_cause AS (PARTITION BY basis, model, value, stretch ORDER BY place DESC)
)

SELECT
    * EXCLUDE (
        is_asked, cause, noise_ratio, is_low, below_usual_ratio, goes_on, stretch,
        first_class, first_evidence, was_ticket
    ) REPLACE (
        CASE WHEN is_recovering THEN first_class ELSE class END AS class,
        CASE WHEN is_recovering THEN concat('recovering; before: ', first_evidence) ELSE evidence END
            AS evidence,
        CASE WHEN is_recovering AND was_ticket THEN 'ticket' ELSE severity END AS severity
    )
FROM told
WHERE is_asked;
