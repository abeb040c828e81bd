/*
name: reconciliation
question: Do our rows agree with what providers and gateways' daily tables say, and if not, why?
grain: one row per reporter, UTC day, provider and model with tokens on either side; the model names are compared without snapshot date
params:
  since: {type: TIMESTAMP, default: null, meaning: "First day, inclusive; all time if not set."}
  until: {type: TIMESTAMP, default: null, meaning: "End of the days, exclusive; open if not set."}
  reporter: {type: VARCHAR, default: null, meaning: "Only against this report: openai, anthropic, litellm_daily."}
  provider: {type: VARCHAR, default: null, meaning: "Only this provider."}
  tolerance_ratio: {type: DOUBLE, default: 0.005, meaning: "Counts agree if they differ by at most this share of theirs."}
columns:
  reporter: {type: VARCHAR, unit: name, meaning: "Whose figures ours are compared with."}
  day: {type: TIMESTAMP, unit: time, meaning: "UTC day the reporter's buckets begin in; our rows are taken from the same span."}
  provider: {type: VARCHAR, unit: name, meaning: "Who served. Our rows without a provider belong to the one whose report has their model."}
  model: {type: VARCHAR, unit: name, meaning: "In small letters, without provider and snapshot date; '' where the report is not by model."}
  verdict: {type: VARCHAR, unit: name, meaning: "agrees, differs, or cannot be compared."}
  reasons: {type: VARCHAR, unit: names, meaning: "Likely reasons, most certain first; NULL where there is nothing to say."}
  evidence: {type: VARCHAR, unit: text, meaning: "The same in words, with the figures they rest on."}
  our_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens of our rows, ineligible ones and every attempt included."}
  their_prompt_tokens: {type: BIGINT, unit: tokens, meaning: "Prompt tokens as reported, inclusive."}
  difference_tokens: {type: BIGINT, unit: tokens, meaning: "our_prompt_tokens - their_prompt_tokens."}
  difference_ratio: {type: DOUBLE, unit: ratio, meaning: "difference_tokens / their_prompt_tokens."}
  unexplained_tokens: {type: BIGINT, unit: tokens, meaning: "What is left of the difference after the reasons that have a figure; NULL where nothing can be compared."}
  our_cached_tokens: {type: BIGINT, unit: tokens, meaning: "Cached tokens of our rows; NULL if none reports them."}
  their_cached_tokens: {type: BIGINT, unit: tokens, meaning: "Cached tokens as reported."}
  our_cache_write_tokens: {type: BIGINT, unit: tokens, meaning: "Written tokens of our rows; NULL if none reports them or only roll-ups are left."}
  their_cache_write_tokens: {type: BIGINT, unit: tokens, meaning: "Written tokens as reported."}
  our_requests: {type: BIGINT, unit: requests, meaning: "Our rows, one per attempt."}
  their_requests: {type: BIGINT, unit: requests, meaning: "Requests as reported; NULL where not counted."}
  our_models: {type: VARCHAR, unit: names, meaning: "The models our rows name."}
  their_models: {type: VARCHAR, unit: names, meaning: "The models they name."}
  compared_hours: {type: DOUBLE, unit: hours, meaning: "How much of the day is compared: buckets that had ended an hour before the report was made."}
*/
WITH accounts AS MATERIALIZED (
    SELECT *, coalesce(getvariable('tolerance_ratio'), 0.005) AS tolerance_ratio
    FROM usage_explained(
        getvariable('since'), getvariable('until'), coalesce(getvariable('tolerance_ratio'), 0.005)
    )
    WHERE
        matches(reporter, getvariable('reporter')) AND matches(provider, getvariable('provider'))
),

other_names AS (
    SELECT
        a.reporter, a.utc_day, a.provider, a.model AS our_key, b.model AS their_key,
        a.our_models AS our_name, b.their_models AS their_name, b.their_prompt AS same_tokens
    FROM accounts AS a
    JOIN accounts AS b USING (reporter, utc_day, provider)
    WHERE
        a.their_models IS NULL AND b.our_models IS NULL AND b.theirs > 0
        AND abs(a.ours - b.theirs) <= b.tolerance
),

judged AS (
    SELECT
        c.*, our_name, their_name, same_tokens,
        CASE
            WHEN c.day_open THEN 'open_bucket'
            WHEN coalesce(our_requests_that_day, 0) = 0 THEN 'no_rows'
        END AS nothing_to_compare,
        -- Ten requests and more would have come before and after our rows.
        nothing_to_compare IS NULL AND NOT explained AND residual < -tolerance AND (
            (NOT coalesce(begins_as_usual, false)
                AND our_requests_that_day * epoch(our_first - compared_since)
                    >= 10 * compared_seconds)
            OR (NOT coalesce(ends_as_usual, false)
                AND our_requests_that_day * epoch(compared_until - our_last)
                    >= 10 * compared_seconds)
        ) AS partly_ours,
        explained AND causes + pauses + blanks + replays = 0 AS prompt_agrees,
        -- Set right as the prompt tokens were; not where a part of our rows is not there. What
        -- prompt tokens may differ by, their parts may too: they are of the same calls.
        nothing_to_compare IS NULL AND explained AND pauses + blanks + replays = 0
            AND basis = 'as counted' AS parts_comparable,
        our_models IS DISTINCT FROM their_models
            AND our_models IS NOT NULL AND their_models IS NOT NULL AS named_differently,
        CASE
            WHEN NOT parts_comparable OR their_cached IS NULL THEN NULL
            WHEN our_cached IS NULL THEN CASE WHEN their_cached > 0 THEN 'cached_unreported' END
            WHEN abs(kept_cached - their_cached) <= greatest(
                c.tolerance_ratio * their_cached, abs(residual)) THEN NULL
            WHEN kept_cached < their_cached AND unreported_prompt > 0 THEN 'cached_unreported'
            ELSE 'cached_differs'
        END AS cached_fault,
        CASE
            WHEN NOT parts_comparable OR their_written IS NULL OR rolled_up THEN NULL
            WHEN our_written IS NULL THEN CASE WHEN their_written > 0 THEN 'writes_unreported' END
            WHEN abs(kept_written - their_written) <= greatest(
                c.tolerance_ratio * their_written, abs(residual)) THEN NULL
            WHEN kept_written < their_written AND unwritten_prompt > 0 THEN 'writes_unreported'
            ELSE 'writes_differ'
        END AS written_fault,
        -- Not known at all is nothing to differ in.
        (cached_fault IS NULL OR our_cached IS NULL)
            AND (written_fault IS NULL OR our_written IS NULL) AS parts_agree,
        open_tokens < -tolerance AND our_name IS NULL AND nothing_to_compare IS NULL
            AND NOT partly_ours AS elsewhere
    FROM accounts AS c
    LEFT JOIN other_names AS o
        ON o.reporter = c.reporter AND o.utc_day = c.utc_day AND o.provider = c.provider
        AND c.model IN (o.our_key, o.their_key)
    QUALIFY row_number() OVER (
        PARTITION BY c.reporter, c.utc_day, c.provider, c.model ORDER BY our_name, their_name
    ) = 1
),

named AS (
    SELECT
        *,
        list_filter([
            CASE WHEN nothing_to_compare = 'open_bucket' THEN {
                'name': 'open_bucket', 'says': format(
                    'the report was made {} UTC: its bucket had not ended an hour before',
                    strftime(read_at, '%Y-%m-%d %H:%M'))} END,
            CASE WHEN nothing_to_compare = 'no_rows' THEN {
                'name': 'no_rows', 'says': 'we have no rows of this provider in that time'} END,
            CASE WHEN NOT day_open AND open_buckets > 0 THEN {
                'name': 'open_buckets_left_out', 'says': format(
                    '{} buckets had not ended an hour before the report: left out on both sides',
                    open_buckets)} END,
            CASE WHEN nothing_to_compare IS NULL AND repeats = 1 THEN {
                'name': 'repeated_rows', 'says': format(
                    '{:,} of our rows repeat a call (an attempt before the last, an answer that'
                    ' another row has): {:,} prompt tokens', repeat_requests, repeat_prompt)} END,
            CASE WHEN nothing_to_compare IS NULL AND failed = 1 THEN {
                'name': 'failed_rows', 'says': format(
                    '{:,} of our rows failed and are not in the report: {:,} prompt tokens',
                    failed_requests, failed_prompt)} END,
            CASE WHEN nothing_to_compare IS NULL AND basis = 'exclusive' THEN {
                'name': 'exclusive_counts', 'says': format(
                    'our prompt counts leave out what was cached{}: ours + {:,} = {:,}, theirs'
                    ' {:,}', CASE WHEN written_sign <> 0 THEN ' or written' ELSE '' END,
                    supposed - kept_prompt, supposed, theirs)} END,
            CASE WHEN nothing_to_compare IS NULL AND basis = 'twice' THEN {
                'name': 'counted_twice', 'says': format(
                    'our prompt counts have what was cached{} in them twice: ours - {:,} = {:,},'
                    ' theirs {:,}', CASE WHEN written_sign <> 0 THEN ' or written' ELSE '' END,
                    kept_prompt - supposed, supposed, theirs)} END,
            CASE WHEN nothing_to_compare IS NULL AND basis = 'shifted' THEN {
                'name': 'day_border', 'says': format(
                    'days that begin {} hours {} give {:,}, theirs {:,}: their days are not of UTC,'
                    ' or our clock is not', abs(shift_hours),
                    CASE WHEN shift_hours > 0 THEN 'later' ELSE 'earlier' END,
                    supposed, theirs)} END,
            CASE WHEN nothing_to_compare IS NULL AND pauses = 1 AND residual < 0 THEN {
                'name': 'missing_rows', 'says': format(
                    'no rows of ours from {} UTC between busy hours: about {:,} prompt tokens by'
                    ' the hours around it', gap_times, gap)} END,
            CASE WHEN nothing_to_compare IS NULL AND blanks = 1 AND residual < 0 THEN {
                'name': 'rows_without_counts', 'says': format(
                    '{:,} of our rows have no prompt count (streams without usage?): about {:,}'
                    ' prompt tokens if they are like the others', blank_requests, blank)} END,
            CASE WHEN partly_ours THEN {
                'name': 'partly_covered', 'says': format(
                    'our rows go from {} to {} UTC only',
                    strftime(our_first, '%Y-%m-%d %H:%M'), strftime(our_last, '%Y-%m-%d %H:%M')
                )} END,
            CASE WHEN nothing_to_compare IS NULL AND our_name IS NOT NULL THEN {
                'name': 'other_name', 'says': format(
                    'our {} and their {} have the same {:,} prompt tokens: one model, two names?',
                    our_name, their_name, same_tokens)} END,
            CASE WHEN elsewhere THEN {
                'name': 'elsewhere', 'says': format(
                    '{:,} of their prompt tokens ({:.1f} %) are in no row of ours: traffic that does'
                    ' not pass where our rows come from? So on {} of {} {}', -open_tokens,
                    coalesce(ratio(-open_tokens * 100, theirs), 0),
                    count_if(elsewhere) OVER same_model,
                    count_if(nothing_to_compare IS NULL) OVER same_model,
                    CASE WHEN count_if(nothing_to_compare IS NULL) OVER same_model = 1
                        THEN 'day' ELSE 'days' END)} END,
            CASE WHEN nothing_to_compare IS NULL AND our_name IS NULL AND open_tokens > tolerance
                THEN CASE WHEN theirs = 0 THEN {
                'name': 'not_in_report', 'says': 'the report has nothing of this model that day:'
                    ' another account or provider, or another name?'} ELSE {
                'name': 'unexplained', 'says': format(
                    '{:,} prompt tokens of ours are not in the report: rows taken in twice, or'
                    ' another account?', open_tokens)} END END,
            CASE WHEN cached_fault = 'cached_unreported' THEN {
                'name': cached_fault, 'says': format(
                    'rows with {:,} prompt tokens do not say what was cached; theirs were {:,}',
                    unreported_prompt, their_cached)} END,
            CASE WHEN cached_fault = 'cached_differs' THEN {
                'name': cached_fault, 'says': format(
                    'cached tokens differ though prompt tokens do not: ours {:,}, theirs {:,}',
                    kept_cached, their_cached)} END,
            CASE WHEN written_fault = 'writes_unreported' THEN {
                'name': written_fault, 'says': format(
                    'rows with {:,} prompt tokens do not say what was written; theirs were {:,}',
                    unwritten_prompt, their_written)} END,
            CASE WHEN written_fault = 'writes_differ' THEN {
                'name': written_fault, 'says': format(
                    'written tokens differ though prompt tokens do not: ours {:,}, theirs {:,}',
                    kept_written, their_written)} END,
            CASE WHEN nothing_to_compare IS NULL AND stored_requests > 0 THEN {
                'name': 'response_cache_rows', 'says': format(
                    '{:,} of our rows were answered by a response cache: without tokens here and at'
                    ' the provider{}', stored_requests, CASE WHEN replays = 1 AND residual < 0
                    THEN format(', in this table with about {:,} prompt tokens', replayed)
                    ELSE '' END)} END,
            CASE WHEN named_differently THEN {
                'name': 'model_names', 'says': format(
                    'compared by name without date: our {}, their {}', our_models, their_models
                )} END,
            CASE WHEN rolled_up THEN {
                'name': 'rolled_up', 'says': 'of our side only roll-ups are left: provider,'
                    ' written tokens and repeats are not known'} END
        ], lambda reason: reason IS NOT NULL) AS likely
    FROM judged
    WINDOW same_model AS (PARTITION BY reporter, provider, model)
)

SELECT
    reporter, utc_day AS day, provider, model,
    CASE
        WHEN nothing_to_compare IS NOT NULL OR partly_ours THEN 'cannot be compared'
        WHEN prompt_agrees AND parts_agree THEN 'agrees'
        ELSE 'differs'
    END AS verdict,
    nullif(array_to_string(list_transform(likely, lambda reason: reason.name), ', '), '')
        AS reasons,
    nullif(array_to_string(list_transform(likely, lambda reason: reason.says), '; '), '')
        AS evidence,
    our_prompt AS our_prompt_tokens, their_prompt AS their_prompt_tokens,
    (ours - theirs)::BIGINT AS difference_tokens,
    ratio(difference_tokens, theirs) AS difference_ratio,
    CASE WHEN nothing_to_compare IS NULL AND NOT partly_ours THEN open_tokens END
        AS unexplained_tokens,
    our_cached AS our_cached_tokens, their_cached AS their_cached_tokens,
    our_written AS our_cache_write_tokens, their_written AS their_cache_write_tokens,
    our_requests, their_requests, our_models, their_models,
    compared_seconds / 3600 AS compared_hours
FROM named
ORDER BY reporter, day, greatest(ours, theirs) DESC, provider, model;
