/*
name: changes
question: Which changes could win tokens, how many a day, and how is that known?
grain: one row per change, most surely won tokens first (a coverage gap of more than half of all tokens before them). Rows must not be added up, see overlaps; nothing below the floor, no rows without data
params:
  since: {type: TIMESTAMP, default: null, meaning: "Start of the window, inclusive; seven days before its end if not set."}
  until: {type: TIMESTAMP, default: null, meaning: "End of the window, exclusive; the end of the data if not set, or if that is earlier."}
  zone: {type: VARCHAR, default: UTC, meaning: "Time zone in whose days evidence names weeks, like Europe/Berlin."}
  weeks: {type: BIGINT, default: 12, minimum: 1, meaning: "How many weeks before the window a template or tenant is compared with, 7 x 24 hours each."}
  soon_seconds: {type: BIGINT, default: 300, minimum: 1, meaning: "Evicted KV that is stored again so soon counts as surely won."}
  least_coverage_ratio: {type: DOUBLE, default: 0.95, meaning: "A source whose coverage is at least this has no gap."}
  least_tokens_per_day: {type: BIGINT, default: null, minimum: 0, meaning: "Changes that could win fewer tokens a day are not listed; if not set 0.5 % of the prompt tokens of a day, at least 10000."}
  most_turns: {type: BIGINT, default: 2000000, minimum: 1, meaning: "Of more requests in the window, conversations are sampled."}
  limit: {type: BIGINT, default: 20, minimum: 1, meaning: "Most rows."}
  route: {type: VARCHAR, default: null, meaning: "Only this route; leaves out what events tell."}
  template: {type: VARCHAR, default: null, meaning: "Only this template; leaves out what events tell."}
  tenant: {type: VARCHAR, default: null, meaning: "Only this tenant; leaves out what events tell."}
filters: [model]
columns:
  rank: {type: BIGINT, unit: rank, meaning: "1 = first."}
  kind: {type: VARCHAR, unit: name, meaning: "coverage gap, below best week, breakpoints never read, evicted and reused, replica spread or history not reused."}
  dimension: {type: VARCHAR, unit: name, meaning: "What the subject is: source, template, tenant, route or model."}
  subject: {type: VARCHAR, unit: name, meaning: "Whose tokens they are, '' if not given."}
  model: {type: VARCHAR, unit: name, meaning: "The model, '' where it is several or not given."}
  sentence_key: {type: VARCHAR, unit: name, meaning: "The kind with underscores."}
  sentence: {type: VARCHAR, unit: text, meaning: "What to do, in one sentence."}
  tokens_per_day_lower: {type: BIGINT, unit: tokens per day, meaning: "At least so many tokens a day would be cached instead of computed. coverage gap, breakpoints never read: 0, nothing shows that any would. below best week: what half of the weeks, this one among them, reached at this week's mix and load. evicted and reused: evicted and stored again within soon_seconds. replica spread, history not reused: if these turns reused what the lower quarter of the better ones does; 0 where no conversations are known. A window under a day counts as a day."}
  tokens_per_day_upper: {type: BIGINT, unit: tokens per day, meaning: "At most so many. coverage gap: every token nobody told of. below best week: what the best earlier week reached at this week's mix and load. breakpoints never read: written while an earlier write was alive. evicted and reused: all that was stored again. replica spread, history not reused: all that such turns resend and was not cached; without conversations what hours on half of the replicas reached."}
  basis: {type: VARCHAR, unit: name, meaning: "measured = both bounds are counts of what happened; estimated = one rests on other traffic, or on nothing known; replayed = traffic sent through a model of the cache."}
  evidence: {type: VARCHAR, unit: text, meaning: "The figures behind it, in words."}
  next_step: {type: VARCHAR, unit: text, meaning: "A command or a setting."}
  overlaps: {type: VARCHAR, unit: text, meaning: "Rows before it that may speak of the same tokens; NULL = none does."}
*/
WITH floors AS MATERIALIZED (
    SELECT
        sum(prompt_tokens) AS all_tokens,
        coalesce(
            getvariable('least_tokens_per_day'),
            greatest(10000, 0.005 * all_tokens / any_value(days)), 10000
        ) AS least_per_day
    FROM hour_rollup, change_window(getvariable('since'), getvariable('until'))
    WHERE hour >= begins AND hour < ends
),

candidates AS (
    FROM change_coverage(
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('route'),
        getvariable('template'), getvariable('tenant'),
        coalesce(getvariable('least_coverage_ratio'), 0.95)
    )
    UNION ALL BY NAME
    FROM change_below_best(
        getvariable('since'), getvariable('until'), coalesce(getvariable('weeks'), 12),
        getvariable('model'), getvariable('route'), getvariable('template'), getvariable('tenant'),
        (SELECT least_per_day FROM floors), coalesce(getvariable('zone'), 'UTC')
    )
    UNION ALL BY NAME
    FROM change_breakpoints(
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('route'),
        getvariable('template'), getvariable('tenant'), (SELECT least_per_day FROM floors)
    )
    UNION ALL BY NAME
    FROM change_evicted(
        getvariable('since'), getvariable('until'), getvariable('model'),
        coalesce(getvariable('soon_seconds'), 300)
    )
    WHERE coalesce(getvariable('route'), getvariable('template'), getvariable('tenant')) IS NULL
    UNION ALL BY NAME
    FROM change_sessions(
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('route'),
        getvariable('template'), getvariable('tenant'), coalesce(getvariable('most_turns'), 2000000)
    )
    UNION ALL BY NAME
    FROM change_spread(
        getvariable('since'), getvariable('until'), getvariable('model'), getvariable('route'),
        getvariable('template'), getvariable('tenant')
    )
),

ranked AS MATERIALIZED (
    SELECT
        row_number() OVER (
            ORDER BY
                coalesce(kind = 'coverage gap' AND upper > 0.5 * all_tokens, false) DESC,
                lower / days DESC, upper / days DESC, kind, dimension, subject, model
        ) AS rank,
        candidates.*
    FROM candidates, floors
    WHERE upper / days >= least_per_day
    QUALIFY rank <= coalesce(getvariable('limit'), 20)
),

-- Rows of one kind never share tokens. Others do unless something tells them apart.
shared AS (
    SELECT r.rank, string_agg(e.rank::VARCHAR, ', ' ORDER BY e.rank) AS ranks
    FROM ranked AS r
    JOIN ranked AS e ON
        e.rank < r.rank AND e.kind <> r.kind
        AND (e.model = r.model OR '' IN (e.model, r.model))
        AND (e.route = r.route OR '' IN (e.route, r.route))
        AND (e.template = r.template OR '' IN (e.template, r.template))
        AND (e.tenant = r.tenant OR '' IN (e.tenant, r.tenant))
        AND (
            'all' IN (e.tokens_are, r.tokens_are) OR 'told' IN (e.tokens_are, r.tokens_are)
            OR e.tokens_are = r.tokens_are
        )
        AND ('untold' NOT IN (e.tokens_are, r.tokens_are) OR 'all' IN (e.tokens_are, r.tokens_are))
    GROUP BY r.rank
)

SELECT
    rank, kind, dimension, subject, model, replace(kind, ' ', '_') AS sentence_key, sentence,
    round(lower / days)::BIGINT AS tokens_per_day_lower,
    round(upper / days)::BIGINT AS tokens_per_day_upper,
    basis, evidence, next_step,
    'may be the same tokens as ' || ranks AS overlaps
FROM ranked
LEFT JOIN shared USING (rank)
ORDER BY rank;
