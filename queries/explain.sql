/*
name: explain
question: Why did the token hit ratio change between two windows, by other ratios or by another mix?
grain: one row per value of `by` with reported traffic in either window; largest part first. Parts are whole tokens and sum exactly to the change
params:
  by: {type: VARCHAR, default: null, one_of: [model, replica, route, template, template_version, tenant, source], required: true, meaning: "The segments the change is split into."}
  baseline_since: {type: TIMESTAMP, default: null, meaning: "Start of the baseline; if neither border is set, the window of equal length just before."}
  baseline_until: {type: TIMESTAMP, default: null, meaning: "End of the baseline, exclusive; the start of the window if not set."}
filters: [since, until, model, replica, route, template, tenant]
columns:
  value: {type: VARCHAR, unit: name, meaning: "The segment, '' if not given."}
  change_tokens: {type: BIGINT, unit: tokens, meaning: "Its part of the change, mix_tokens + within_tokens. Over all segments: cached tokens in the window less what the baseline's ratio would have made of its reported prompt tokens, in whole tokens. Negative = computed that would have been cached."}
  within_tokens: {type: BIGINT, unit: tokens, meaning: "Part of its own ratio: cached tokens less its own baseline ratio x its reported prompt tokens. 0 where it has traffic in one window only."}
  mix_tokens: {type: BIGINT, unit: tokens, meaning: "Part of its share of traffic: (its baseline ratio - the whole baseline's) x (its reported prompt tokens - what its baseline share of them would be). A segment that appeared is all mix: cached tokens less the whole baseline's ratio x its tokens."}
  change_ratio: {type: DOUBLE, unit: ratio, meaning: "change_tokens / reported prompt tokens of all segments in the window: its part of the change of the ratio."}
  seen: {type: VARCHAR, unit: name, meaning: "both, appeared (only in the window) or vanished (only in the baseline)."}
  token_hit_ratio: {type: DOUBLE, unit: ratio, meaning: "Cached / reported prompt tokens in the window."}
  token_hit_ratio_before: {type: DOUBLE, unit: ratio, meaning: "The same in the baseline."}
  traffic_share_ratio: {type: DOUBLE, unit: ratio, meaning: "Its reported prompt tokens / those of all segments, in the window."}
  traffic_share_ratio_before: {type: DOUBLE, unit: ratio, meaning: "The same in the baseline."}
  reported_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens with a known cached count in the window."}
  cached_tokens: {type: BIGINT, unit: tokens, meaning: "Of those, cached."}
  reported_prompt_tokens_before: {type: BIGINT, unit: tokens, meaning: "The same in the baseline."}
  cached_tokens_before: {type: BIGINT, unit: tokens, meaning: "The same in the baseline."}
*/
WITH segments AS (
    SELECT
        value,
        reported_tokens::HUGEINT AS p1, cached_tokens::HUGEINT AS c1,
        reported_tokens_before::HUGEINT AS p0, cached_tokens_before::HUGEINT AS c0,
        sum(p1) OVER () AS all_p1, sum(c1) OVER () AS all_c1,
        sum(p0) OVER () AS all_p0, sum(c0) OVER () AS all_c0
    FROM compared_windows(
        getvariable('by'), getvariable('baseline_since'), getvariable('baseline_until'),
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('replica'),
        getvariable('route'), getvariable('template'), getvariable('tenant')
    )
    WHERE reported_tokens > 0 OR reported_tokens_before > 0
),

-- The change of the whole and each part, not rounded. Without traffic in both windows all are NULL.
parts AS (
    SELECT
        *,
        round(ratio(all_c1 * all_p0 - all_c0 * all_p1, all_p0)) AS all_change,
        unnest([
            {
                'kind': 'within',
                'tokens': CASE WHEN p0 > 0 AND p1 > 0 THEN (c1 * p0 - c0 * p1) / p0 ELSE 0 END
            },
            {
                'kind': 'mix',
                'tokens': CASE
                    WHEN p0 > 0
                        THEN (c0 * all_p0 - all_c0 * p0) * ((p1 * all_p0 - p0 * all_p1) / all_p0)
                            / (p0 * all_p0)
                    ELSE (c1 * all_p0 - all_c0 * p1) / all_p0
                END
            }
        ]) AS part
    FROM segments
    WHERE all_p0 > 0 AND all_p1 > 0
),

-- Whole tokens that sum to the whole: the largest remainders get the tokens that are left (or, where
-- a division was a hair too high, the smallest give one back).
rounded AS (
    SELECT
        value, part.kind AS kind,
        floor(part.tokens)::BIGINT AS whole,
        row_number() OVER (ORDER BY part.tokens - whole DESC, value, part.kind) AS place,
        (all_change - sum(whole) OVER ())::BIGINT AS tokens_left,
        whole + (place <= tokens_left)::BIGINT
        - (count(*) OVER () - place < -tokens_left)::BIGINT AS tokens
    FROM parts
),

split AS (
    SELECT
        value,
        sum(tokens)::BIGINT AS change_tokens,
        (sum(tokens) FILTER (kind = 'within'))::BIGINT AS within_tokens,
        (sum(tokens) FILTER (kind = 'mix'))::BIGINT AS mix_tokens
    FROM rounded
    GROUP BY value
)

SELECT
    segments.value,
    change_tokens, within_tokens, mix_tokens,
    ratio(change_tokens, all_p1) AS change_ratio,
    CASE WHEN p0 = 0 THEN 'appeared' WHEN p1 = 0 THEN 'vanished' ELSE 'both' END AS seen,
    ratio(c1, p1) AS token_hit_ratio,
    ratio(c0, p0) AS token_hit_ratio_before,
    ratio(p1, all_p1) AS traffic_share_ratio,
    ratio(p0, all_p0) AS traffic_share_ratio_before,
    p1::BIGINT AS reported_prompt_tokens,
    c1::BIGINT AS cached_tokens,
    p0::BIGINT AS reported_prompt_tokens_before,
    c0::BIGINT AS cached_tokens_before
FROM segments
LEFT JOIN split USING (value)
ORDER BY abs(change_tokens) DESC NULLS LAST, p1 DESC, segments.value;
