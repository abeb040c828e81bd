-- Why our sums and a report's differ: what there is to go by, and which account of it makes them
-- agree. The question reconciliation says so in words; docs/provider-usage.md explains the reasons.
-- Runs after usage_sides.sql.

-- The sides of every day and model with what a reason may rest on: pauses in our rows, days that
-- begin at another hour, rows without counts.
CREATE OR REPLACE MACRO usage_evidence(since_border, until_border, tolerance_ratio) AS TABLE
WITH days AS MATERIALIZED (
    SELECT *, tolerance_ratio * coalesce(their_prompt, 0) AS tolerance
    FROM usage_sides(since_border, until_border)
),

-- Days that begin so many hours later have their tokens, and ours do not: on two days at least and
-- on half of those that differ.
alike AS (
    SELECT
        reporter, utc_day, provider, model, shift_hours, shifted_prompt,
        avg(abs(shifted_prompt - their_prompt) / their_prompt) OVER same_shift AS mean_error
    FROM usage_shifts(since_border, until_border)
    JOIN (
        SELECT *, count(*) OVER (PARTITION BY reporter, provider, model) AS differing_days
        FROM days
        WHERE their_prompt > 0 AND abs(coalesce(our_prompt, 0) - their_prompt) > tolerance
    ) USING (reporter, utc_day, provider, model)
    WHERE abs(shifted_prompt - their_prompt) <= tolerance
    WINDOW same_shift AS (PARTITION BY reporter, provider, model, shift_hours)
    QUALIFY count(*) OVER same_shift >= greatest(2, differing_days / 2)
),

shifts AS (
    SELECT * EXCLUDE (mean_error) FROM alike
    QUALIFY row_number() OVER (
        PARTITION BY reporter, utc_day, provider, model
        ORDER BY mean_error, abs(shift_hours), shift_hours
    ) = 1
)

SELECT
    *,
    coalesce(their_prompt, 0) AS theirs, coalesce(our_prompt, 0) AS ours,
    coalesce(our_cached, their_cached, 0) AS some_cached,
    coalesce(our_written, their_written, 0) AS some_written,
    coalesce(gap_tokens, 0) AS gap,
    -- As long as the others, on the average.
    coalesce(ratio(our_prompt, our_requests - blank_requests - stored_requests), 0) AS mean_prompt,
    round(coalesce(blank_requests, 0) * mean_prompt)::BIGINT AS blank,
    -- A gateway's own table has them with the tokens they replay; a provider never saw them.
    CASE WHEN reporter = provider THEN 0
        ELSE round(coalesce(stored_requests, 0) * mean_prompt)::BIGINT
    END AS replayed
FROM days
LEFT JOIN usage_gaps(since_border, until_border) USING (reporter, utc_day, provider, model)
LEFT JOIN shifts USING (reporter, utc_day, provider, model);

-- The one with the fewest causes that makes the counts agree; an estimate weighs more than a count.
-- Where none does: without what cannot be theirs, and the rest stays open.
CREATE OR REPLACE MACRO usage_explained(since_border, until_border, tolerance_ratio) AS TABLE
WITH sides AS MATERIALIZED (
    FROM usage_evidence(since_border, until_border, tolerance_ratio)
),

-- What may have happened to our count, one row per combination, and how it would then compare.
-- `supposed` is our count set right, `estimated` what is not in it by an estimate.
hypotheses AS (
    SELECT
        *,
        ours - repeats * coalesce(repeat_prompt, 0) - failed * coalesce(failed_prompt, 0)
            AS kept_prompt,
        some_cached - repeats * coalesce(repeat_cached, 0) - failed * coalesce(failed_cached, 0)
            AS kept_cached,
        some_written - repeats * coalesce(repeat_written, 0)
            - failed * coalesce(failed_written, 0) AS kept_written,
        repeats + failed + (basis <> 'as counted')::INTEGER AS causes,
        CASE
            WHEN basis = 'shifted' THEN shifted_prompt
            WHEN parts_of = 'theirs' THEN kept_prompt + cached_sign * coalesce(their_cached, 0)
                + written_sign * coalesce(their_written, 0)
            ELSE kept_prompt + cached_sign * kept_cached + written_sign * kept_written
        END AS supposed,
        supposed - theirs AS residual,
        round(
            (pauses * gap + blanks * blank + replays * replayed)
            * coalesce(ratio(supposed, ours), 1)
        )::BIGINT AS estimated,
        CASE
            WHEN pauses + blanks + replays = 0 THEN abs(residual) <= tolerance
            -- An estimate may be half or double; beside another cause that would explain too much.
            WHEN causes = 0
                THEN residual < -tolerance AND -residual BETWEEN 0.5 * estimated AND 2 * estimated
            ELSE residual < -tolerance
                AND -residual BETWEEN 0.75 * estimated AND 1.33 * estimated
        END AS explained
    FROM sides
    CROSS JOIN (VALUES (0), (1)) AS without_repeats(repeats)
    CROSS JOIN (VALUES (0), (1)) AS without_failed(failed)
    CROSS JOIN (VALUES (0), (1)) AS with_pauses(pauses)
    CROSS JOIN (VALUES (0), (1)) AS with_blanks(blanks)
    CROSS JOIN (VALUES (0), (1)) AS with_replays(replays)
    CROSS JOIN (
        VALUES ('as counted', 0, 0), ('exclusive', 1, 1), ('exclusive', 1, 0),
            ('twice', -1, -1), ('twice', -1, 0), ('shifted', 0, 0)
    ) AS bases(basis, cached_sign, written_sign)
    -- More cached than prompt tokens is left out on arrival: then only they have the parts.
    CROSS JOIN (VALUES ('ours'), ('theirs')) AS parts(parts_of)
    WHERE
        (repeats = 0 OR repeat_prompt > 0)
        AND (failed = 0 OR failed_prompt > 0)
        AND (pauses = 0 OR gap > 0)
        AND (blanks = 0 OR blank > 0)
        AND (replays = 0 OR replayed > 0)
        AND (parts_of = 'ours' OR (basis = 'exclusive'
            AND coalesce(their_cached, 0) + coalesce(their_written, 0) > 0))
        AND (cached_sign = 0 OR some_cached > 0 OR (written_sign <> 0 AND some_written > 0))
        AND (cached_sign = 0 OR written_sign <> 0 OR some_written > 0)
        AND (basis <> 'shifted'
            OR (shift_hours IS NOT NULL AND repeats + failed + pauses + blanks + replays = 0))
)

SELECT
    *,
    CASE
        WHEN explained
            THEN causes + 1.5 * (pauses + blanks + replays)
                + CASE WHEN basis = 'shifted' THEN 0.2 ELSE 0 END
                -- Repeats are there to see: whoever leaves them out of account needs more luck.
                + CASE
                    WHEN cached_sign <> 0 AND repeats = 0 AND repeat_prompt > tolerance THEN 1.1
                    ELSE 0
                END
        WHEN
            basis = 'as counted' AND failed = 0
            AND (repeats = 1) = (coalesce(repeat_prompt, 0) > tolerance)
            AND (pauses = 1) = (gap > tolerance)
            AND (blanks = 1) = (blank > tolerance)
            AND (replays = 1) = (replayed > tolerance)
            THEN 50
        ELSE 99
    END AS rank,
    CASE
        WHEN explained THEN 0
        ELSE residual + least(estimated, greatest(-residual, 0))
    END::BIGINT AS open_tokens
FROM hypotheses
QUALIFY row_number() OVER (
    PARTITION BY reporter, utc_day, provider, model
    ORDER BY rank, abs(residual + estimated), parts_of, cached_sign, written_sign
) = 1;
