-- What the verdict on offload is made of, and its words: pages, command line, API and reports all
-- show the sentence that the question offload_verdict writes with these. docs/offload.md has the
-- rules.

CREATE OR REPLACE MACRO said_seconds(seconds) AS CASE
    WHEN abs(seconds) >= 99.95 THEN format('{:,} s', round(seconds)::BIGINT)
    WHEN abs(seconds) >= 0.9995 THEN printf('%.3g s', seconds)
    WHEN abs(seconds) >= 0.0009995 OR seconds = 0 THEN printf('%.3g ms', seconds * 1e3)
    ELSE printf('%.3g µs', seconds * 1e6)
END;
CREATE OR REPLACE MACRO said_count(count) AS format('{:,}', round(count)::BIGINT);
CREATE OR REPLACE MACRO said_tier(tier) AS
    CASE tier WHEN 'host' THEN 'host memory' WHEN 'disk' THEN 'disk' ELSE 'the remote tier' END;

-- By value and lower tier: all that is known of its loads, of the requests it served and of those
-- that computed meanwhile. `gain` says what the comparison of first tokens shows: 'gain' (interval
-- wholly below 0), 'none' (no gain of the least ratio fits into it), 'split' (medians gain, means
-- do not), 'open' (too wide to say); NULL below 50 requests on each side.
CREATE OR REPLACE MACRO offload_facts(
    dimension, since_border, until_border, wanted_model, wanted_replica, least_gain_ratio
) AS TABLE
WITH loads AS (
    FROM offload_loads(dimension, since_border, until_border, wanted_model, wanted_replica)
),

-- Prefill speed where no page tells of loads.
speeds AS (
    SELECT
        CASE dimension WHEN 'model' THEN model WHEN 'replica' THEN replica ELSE '' END AS value,
        sum(requests / tokens_per_second) / sum(requests) AS seconds_per_token
    FROM prefill_speeds(since_border, until_border, wanted_model, wanted_replica)
    GROUP BY ALL
),

request_rows AS (
    FROM offload_requests(dimension, since_border, until_border, wanted_model, wanted_replica)
),

differences AS (
    SELECT
        *,
        CASE
            WHEN served_requests < 50 OR computed_requests < 50 THEN NULL
            WHEN high_seconds < 0 AND mean_difference_seconds < 0 THEN 'gain'
            WHEN high_seconds < 0 THEN 'split'
            WHEN low_seconds > -least_gain_ratio * computed_seconds THEN 'none'
            ELSE 'open'
        END AS gain
    FROM offload_differences(
        dimension, NULL, since_border, until_border, wanted_model, wanted_replica
    )
),

named AS (
    SELECT
        value,
        count(*) AS reported_requests,
        count(*) FILTER (lower_tokens IS NOT NULL AND prompt_tokens > otherwise_tokens
            OR lower_tokens > 0) AS named_requests,
        count(*) FILTER (lower_tokens = 0 AND moving) AS slowed_requests
    FROM request_rows
    GROUP BY value
),

served AS (
    SELECT
        value, tier,
        count(*) AS tier_requests,
        count(ttft_seconds) AS timed_requests,
        count(waited_seconds) AS waited_requests
    FROM request_rows
    WHERE lower_tokens > 0
    GROUP BY value, tier
)

SELECT
    keys.value, keys.tier,
    loads.* EXCLUDE (value, tier, prefill_seconds_per_token),
    coalesce(loads.prefill_seconds_per_token, speeds.seconds_per_token)
        AS prefill_seconds_per_token,
    named.* EXCLUDE (value),
    served.* EXCLUDE (value, tier),
    d.* EXCLUDE (value, comparison, within_from, load_seconds_per_token, prefill_seconds_per_token),
    greatest(-d.difference_seconds, 0) * tier_requests AS gained_seconds,
    -- What computing requests lose while transfers run, where that is more than chance.
    slow.difference_seconds AS slowdown_seconds, slow.low_seconds AS slowdown_low_seconds,
    slow.gain IS NOT NULL AS slowdown_known,
    CASE
        WHEN slow.gain IS NOT NULL AND slow.low_seconds > 0
            THEN slow.difference_seconds * slowed_requests
        ELSE 0
    END AS lost_seconds
FROM (
    SELECT value, tier FROM loads UNION SELECT value, tier FROM served
) AS keys
LEFT JOIN loads USING (value, tier)
LEFT JOIN speeds USING (value)
LEFT JOIN named USING (value)
LEFT JOIN served USING (value, tier)
LEFT JOIN differences AS d ON d.value = keys.value AND d.comparison = keys.tier
LEFT JOIN differences AS slow ON slow.value = keys.value AND slow.comparison = 'transfers';

-- What is not known, each by name and with what would tell it.
CREATE OR REPLACE MACRO offload_missing(
    tier, gain, reported_requests, named_requests, tier_requests, timed_requests, waited_requests,
    served_requests, computed_requests, loaded_tokens, load_seconds, store_seconds,
    load_seconds_per_token, prefill_seconds_per_token, ranks, finding
) AS list_filter([
    CASE
        WHEN gain = 'split' THEN 'agreement of medians and means: most requests gain, but the slow'
            || ' ones lose as much'
        WHEN gain = 'open' THEN 'more requests: the interval holds both a gain and none'
        WHEN gain IS NOT NULL THEN NULL
        WHEN reported_requests = 0 THEN 'request rows with cached tokens'
        WHEN named_requests = 0 THEN 'cached tokens by tier on request rows'
        WHEN tier_requests = 0 THEN 'request rows served from ' || said_tier(tier)
        WHEN timed_requests = 0 THEN 'time to first token of requests served from '
            || said_tier(tier)
        WHEN waited_requests = 0 THEN 'queue time of requests served from ' || said_tier(tier)
        ELSE '50 requests served from ' || said_tier(tier) || ' and 50 that computed as many tokens'
            || ' at equal length and load, 10 of each side by side ('
            || said_count(served_requests) || ' and ' || said_count(computed_requests)
            || ' comparable of ' || said_count(tier_requests) || ' served)'
    END,
    CASE WHEN loaded_tokens IS NULL THEN 'tokens loaded from ' || said_tier(tier) END,
    CASE WHEN load_seconds IS NULL THEN 'time of loads from ' || said_tier(tier) END,
    CASE WHEN store_seconds IS NULL THEN 'time of writes to ' || said_tier(tier) END,
    CASE
        WHEN prefill_seconds_per_token IS NULL
            THEN 'prefill speed (100 requests of different length on a replica)'
    END,
    CASE
        WHEN gain IS NULL AND finding IS NULL AND ranks IS NULL
            AND load_seconds_per_token >= prefill_seconds_per_token
            THEN 'ranks whose load times the page adds up'
    END
], lambda part: part IS NOT NULL);

-- The finding with its figures.
CREATE OR REPLACE MACRO offload_reason(
    finding, tier, difference, low, high, computed_seconds, served_requests, computed_requests,
    ttft_point, gained_seconds, lost_seconds, least_gain_ratio
) AS CASE finding
    WHEN 'requests lose' THEN 'requests served from lower tiers gained '
        || said_seconds(gained_seconds) || ' in all, but those that computed while transfers ran'
        || ' lost ' || said_seconds(lost_seconds)
    WHEN 'counters gain' THEN 'loading and writing took less time in all than computing would have'
        || ' (by counters; no first tokens were compared)'
    WHEN 'counters lose' THEN 'a token takes as long to load as to compute, or longer'
        || ' (by counters; no first tokens were compared)'
    ELSE 'requests served from ' || said_tier(tier) || ' had their first token '
        || CASE
            WHEN finding = 'requests gain'
                THEN said_seconds(-difference) || ' sooner (95 % interval '
                || said_seconds(-high) || ' to ' || said_seconds(-low) || ')'
            WHEN low > 0 THEN said_seconds(difference) || ' later (95 % interval '
                || said_seconds(low) || ' to ' || said_seconds(high) || ')'
            ELSE 'no sooner (difference ' || said_seconds(difference) || ', 95 % interval '
                || said_seconds(low) || ' to ' || said_seconds(high) || printf(
                    '; a gain of %.3g %% would be %s)', 100 * least_gain_ratio,
                    said_seconds(least_gain_ratio * computed_seconds))
        END
        || ' than requests that computed as many tokens at equal length and load ('
        || said_count(served_requests) || ' against ' || said_count(computed_requests)
        || ' requests, measured at ' || coalesce(nullif(ttft_point, ''), 'an unknown point')
        || ', queue taken off)'
END;

CREATE OR REPLACE MACRO said_loads(load_token_seconds, prefill_seconds_per_token, ranks) AS
    'loading took ' || CASE WHEN ranks IS NULL THEN 'at most ' ELSE '' END
    || said_seconds(load_token_seconds) || ' a token'
    || coalesce(', computing takes ' || said_seconds(prefill_seconds_per_token), '');

-- A few tokens are noise of the line, and no length at which anything changes.
CREATE OR REPLACE MACRO said_break_even(break_even_tokens, fixed_seconds) AS
    CASE
        WHEN break_even_tokens >= 64 THEN 'a load pays from '
            || said_count(break_even_tokens) || ' tokens on (' || said_seconds(fixed_seconds)
            || ' each, whatever its length)'
    END;

CREATE OR REPLACE MACRO said_costs(
    tier, store_seconds, stored_tokens, loaded_tokens, dropped_tokens
) AS nullif(concat_ws('; ',
    'writing took ' || said_seconds(store_seconds) || ' in all',
    CASE
        WHEN stored_tokens > loaded_tokens THEN 'of ' || said_count(stored_tokens)
            || ' tokens written at least ' || said_count(stored_tokens - loaded_tokens)
            || ' were not read in this window'
    END,
    CASE
        WHEN dropped_tokens > 0 THEN said_count(dropped_tokens) || ' tokens meant for '
            || said_tier(tier) || ' were dropped'
    END
), '');

CREATE OR REPLACE MACRO said_slowdown(known, slowdown_seconds, low_seconds, slowed_requests) AS
    CASE
        WHEN NOT known THEN NULL
        WHEN low_seconds > 0 THEN 'requests that computed while transfers ran waited '
            || said_seconds(slowdown_seconds) || ' longer (' || said_count(slowed_requests)
            || ' of them)'
        ELSE 'requests that computed waited no longer while transfers ran'
    END;
