-- The tables of a store. Time stamps are UTC without a zone; '' is never stored for "not given",
-- NULL is. Migrations go forward only; the version is in `meta`.

CREATE TABLE IF NOT EXISTS meta (key VARCHAR PRIMARY KEY, value VARCHAR);

-- One row per attempt of a request, while it is hot. Columns: exporter.records.Request.
CREATE TABLE IF NOT EXISTS requests (
    ts TIMESTAMP NOT NULL, arrived TIMESTAMP NOT NULL,
    source VARCHAR NOT NULL, source_format VARCHAR NOT NULL,
    request_id VARCHAR, attempt INTEGER NOT NULL,
    session VARCHAR, turn INTEGER, trace_id VARCHAR, response_id VARCHAR, side VARCHAR,
    replica VARCHAR, replica_role VARCHAR, provider VARCHAR,
    model VARCHAR, model_fingerprint VARCHAR,
    route VARCHAR, template VARCHAR, template_version VARCHAR, tenant VARCHAR,
    scope VARCHAR, adapter VARCHAR,
    prompt_tokens BIGINT, cached_tokens BIGINT,
    cached_device BIGINT, cached_host BIGINT, cached_disk BIGINT, cached_remote BIGINT,
    cache_write_tokens BIGINT, cache_write_5m BIGINT, cache_write_1h BIGINT,
    cache_write_other BIGINT, output_tokens BIGINT,
    ttft_seconds DOUBLE, ttft_point VARCHAR,
    queue_seconds DOUBLE, prefill_seconds DOUBLE, e2e_seconds DOUBLE,
    stream BOOLEAN, status VARCHAR NOT NULL, outcome VARCHAR NOT NULL,
    ineligible_reason VARCHAR, prompt_basis VARCHAR NOT NULL,
    block_size INTEGER, block_hashes UBIGINT[], content_hashes UBIGINT[],
    piece_hashes UBIGINT[], piece_lengths UTINYINT[], text_bytes BIGINT,
    hash_scope VARCHAR, hash_key_id VARCHAR,
    flags VARCHAR[],
    found_template VARCHAR,  -- of a row that gave none: whose name in found_templates its template is
    batch BIGINT NOT NULL,  -- number of the batch of lines that brought it
    position BIGINT NOT NULL  -- byte offset of its line in that input
);
-- What each side said by itself of a call whose row in `requests` is a joined one.
CREATE TABLE IF NOT EXISTS request_parts AS FROM requests LIMIT 0;
-- Rows up to this batch are in the roll-ups and the live counters; one row. Later rows are added
-- by the next fold, at the latest when the store is opened.
CREATE TABLE IF NOT EXISTS folded (batch BIGINT NOT NULL);

-- Roll-ups hold additive deltas: several rows may share a key until compaction, so always SUM.
-- Rows of decode replicas enter neither. TTFT histograms: bucket i holds [1.08^i, 1.08^(i+1))
-- seconds, counts per bucket; different ttft_point values are never mixed.
CREATE TABLE IF NOT EXISTS minute_rollup (
    minute TIMESTAMP NOT NULL,
    model VARCHAR, replica VARCHAR, route VARCHAR, ttft_point VARCHAR,
    requests BIGINT, reported_requests BIGINT, ineligible_requests BIGINT, reuse_requests BIGINT,
    miss_requests BIGINT, partial_requests BIGINT, hit_requests BIGINT, unknown_requests BIGINT,
    prompt_tokens BIGINT, reported_prompt_tokens BIGINT, ineligible_prompt_tokens BIGINT,
    cached_tokens BIGINT,
    cached_device BIGINT, cached_host BIGINT, cached_disk BIGINT, cached_remote BIGINT,
    output_tokens BIGINT,
    ttft_miss MAP(INTEGER, BIGINT), ttft_partial MAP(INTEGER, BIGINT),
    ttft_hit MAP(INTEGER, BIGINT), ttft_unknown MAP(INTEGER, BIGINT)
);

CREATE TABLE IF NOT EXISTS hour_rollup (
    hour TIMESTAMP NOT NULL,
    model VARCHAR, route VARCHAR, template VARCHAR, tenant VARCHAR, ttft_point VARCHAR,
    requests BIGINT, reported_requests BIGINT, ineligible_requests BIGINT, reuse_requests BIGINT,
    miss_requests BIGINT, partial_requests BIGINT, hit_requests BIGINT, unknown_requests BIGINT,
    prompt_tokens BIGINT, reported_prompt_tokens BIGINT, ineligible_prompt_tokens BIGINT,
    cached_tokens BIGINT,
    cached_device BIGINT, cached_host BIGINT, cached_disk BIGINT, cached_remote BIGINT,
    output_tokens BIGINT,
    ttft_miss MAP(INTEGER, BIGINT), ttft_partial MAP(INTEGER, BIGINT),
    ttft_hit MAP(INTEGER, BIGINT), ttft_unknown MAP(INTEGER, BIGINT)
);

-- The sum of sparse histograms: one entry per bucket of any of them, zeros left out.
CREATE OR REPLACE MACRO sum_entries(entries) AS map_from_entries(list_filter(
    list_transform(
        list_sort(list_distinct(list_transform(entries, lambda e: e.key))),
        lambda bucket: {
            'key': bucket,
            'value': list_sum(list_transform(
                list_filter(entries, lambda e: e.key = bucket), lambda e: e.value))::BIGINT
        }),
    lambda e: e.value <> 0));
CREATE OR REPLACE MACRO sum_histograms(histograms) AS
    sum_entries(flatten(list_transform(histograms, lambda h: map_entries(h))));

-- Shared prefixes that were found in chains of requests without a template (exporter.templates_found).
-- Rows without one that begin with a prefix have `given_name`, else `name`, as their template.
-- `prefix`: its chain hash in no scope. `heir_of`: the name of the version it took over from.
CREATE TABLE IF NOT EXISTS found_templates (
    name VARCHAR PRIMARY KEY, prefix UBIGINT NOT NULL, hash_key_id VARCHAR NOT NULL,
    prefix_tokens BIGINT NOT NULL, first_seen TIMESTAMP NOT NULL, last_seen TIMESTAMP NOT NULL,
    requests BIGINT NOT NULL, heir_of VARCHAR, given_name VARCHAR
);
-- By which chains they are known: the `blocks`-th hash of the chain in each scope they were met in.
-- `place`: the replica whose names these are, where hash_scope is engine; else ''.
CREATE TABLE IF NOT EXISTS found_prefixes (
    prefix UBIGINT NOT NULL, hash_key_id VARCHAR NOT NULL, place VARCHAR NOT NULL,
    blocks INTEGER NOT NULL, name VARCHAR NOT NULL, last_seen TIMESTAMP NOT NULL,
    PRIMARY KEY (prefix, hash_key_id, place)
);
-- Every name that users gave them. `is_own`: nothing else was ever called so, so that what is summed
-- under it can follow when it is called otherwise.
CREATE TABLE IF NOT EXISTS found_names (
    name VARCHAR NOT NULL, given_name VARCHAR NOT NULL, is_own BOOLEAN NOT NULL,
    PRIMARY KEY (name, given_name)
);

-- Before this hour the requests table no longer has rows: only roll-ups speak. One row.
CREATE TABLE IF NOT EXISTS hot_since (hour TIMESTAMP NOT NULL);

-- What the counters on metric pages rose by. Columns: exporter.records.EngineSample. `observer`
-- tells whose they are: only an engine's own enter engine figures. Keys of maps: {tier}/{unit}, of
-- offload {store|load}/{tier}, of offload_dropped {tier} (tokens meant for it, not written).
CREATE TABLE IF NOT EXISTS engine_samples (
    target VARCHAR NOT NULL, replica VARCHAR NOT NULL, engine VARCHAR NOT NULL,
    observer VARCHAR NOT NULL DEFAULT 'engine', exported_by VARCHAR, version VARCHAR,
    model VARCHAR, tenant VARCHAR, route VARCHAR, role VARCHAR NOT NULL,
    since TIMESTAMP, ts TIMESTAMP NOT NULL, reset BOOLEAN NOT NULL, gap BOOLEAN NOT NULL,
    provenance VARCHAR, origin VARCHAR NOT NULL DEFAULT 'scrape', origin_name VARCHAR,
    prompt_tokens BIGINT, cached_tokens BIGINT,
    cached_device BIGINT, cached_host BIGINT, cached_disk BIGINT, cached_remote BIGINT,
    lookup_tokens BIGINT, lookup_hit_tokens BIGINT,
    external_lookup_tokens BIGINT, external_hit_tokens BIGINT,
    output_tokens BIGINT, finished_requests BIGINT, preemptions BIGINT,
    lookup_count BIGINT, hit_count BIGINT, skipped_count BIGINT, count_unit VARCHAR,
    evicted MAP(VARCHAR, BIGINT), demoted MAP(VARCHAR, BIGINT),
    offload_tokens MAP(VARCHAR, BIGINT), offload_bytes MAP(VARCHAR, BIGINT),
    offload_seconds MAP(VARCHAR, DOUBLE), offload_dropped MAP(VARCHAR, BIGINT),
    prefill_seconds DOUBLE, queue_seconds DOUBLE,
    ttft_sum_seconds DOUBLE, ttft_buckets MAP(DOUBLE, BIGINT),
    block_lifetime_sum_seconds DOUBLE, block_lifetime_buckets MAP(DOUBLE, BIGINT),
    block_idle_sum_seconds DOUBLE, block_idle_buckets MAP(DOUBLE, BIGINT),
    block_reuse_gap_sum_seconds DOUBLE, block_reuse_gap_buckets MAP(DOUBLE, BIGINT),
    running_requests BIGINT, waiting_requests BIGINT, kv_usage_ratio DOUBLE,
    kv_running_tokens BIGINT, kv_cached_tokens BIGINT, kv_free_tokens BIGINT,
    kv_capacity_tokens BIGINT, block_size INTEGER, caching_enabled BOOLEAN, awake BOOLEAN,
    tier_used MAP(VARCHAR, BIGINT), tier_capacity MAP(VARCHAR, BIGINT)
);

-- What a further source told of an interval of an engine that another source had told already: kept
-- to be compared, in no figure.
CREATE TABLE IF NOT EXISTS samples_beside (
    target VARCHAR NOT NULL, replica VARCHAR NOT NULL, engine VARCHAR NOT NULL, model VARCHAR,
    origin VARCHAR NOT NULL, origin_name VARCHAR, since TIMESTAMP, ts TIMESTAMP NOT NULL,
    prompt_tokens BIGINT, cached_tokens BIGINT
);

-- The last state of every target: what the scraper must remember across a restart (the last
-- value of each counter series, as JSON), and what health pages show.
CREATE TABLE IF NOT EXISTS targets (
    target VARCHAR PRIMARY KEY, url VARCHAR, engine VARCHAR,
    up BOOLEAN, last_attempt TIMESTAMP, last_success TIMESTAMP, error VARCHAR,
    missing_metrics VARCHAR[], missing_advice VARCHAR[], frozen BOOLEAN, duration_seconds DOUBLE, series VARCHAR
);

-- Spans of a target's past that were filled from a Prometheus (`source` is its address): samples
-- of the target in [first, until] came from there. `labels` are those the Prometheus puts on the
-- target; `since` is where the span was meant to begin, `first` its first page, `state` the JSON of
-- TargetState at its last one.
CREATE TABLE IF NOT EXISTS backfills (
    target VARCHAR NOT NULL, labels VARCHAR NOT NULL, since TIMESTAMP NOT NULL,
    replica VARCHAR NOT NULL, source VARCHAR NOT NULL,
    first TIMESTAMP NOT NULL, until TIMESTAMP NOT NULL, state VARCHAR NOT NULL,
    PRIMARY KEY (target, labels, since)
);

-- How far each file of a source has been read. `fingerprint` is of its first line.
CREATE TABLE IF NOT EXISTS offsets (
    source VARCHAR, fingerprint VARCHAR, position BIGINT NOT NULL, lines BIGINT NOT NULL, updated TIMESTAMP NOT NULL,
    PRIMARY KEY (source, fingerprint)
);

-- Which objects of an object store have been read. `prefix`, `name` and `version` are keyed hashes;
-- `modified` is the object store's time. Objects written before a prefix's `before` are done with.
CREATE TABLE IF NOT EXISTS objects_read (
    source VARCHAR NOT NULL, prefix BIGINT NOT NULL,
    name BIGINT NOT NULL, version BIGINT NOT NULL, modified TIMESTAMP NOT NULL
);
CREATE TABLE IF NOT EXISTS object_marks (
    source VARCHAR, prefix BIGINT, before TIMESTAMP NOT NULL, PRIMARY KEY (source, prefix)
);

-- What each batch brought; additive like the roll-ups.
CREATE TABLE IF NOT EXISTS ingest_batches (
    hour TIMESTAMP NOT NULL, source VARCHAR NOT NULL, source_format VARCHAR NOT NULL,
    accepted BIGINT, duplicate BIGINT, corrected BIGINT, conflicting BIGINT, rejected BIGINT,
    late_requests BIGINT, late_tokens BIGINT,
    first_ts TIMESTAMP, last_ts TIMESTAMP, last_arrived TIMESTAMP,
    flags MAP(VARCHAR, BIGINT)
);

CREATE TABLE IF NOT EXISTS rejects (
    arrived TIMESTAMP NOT NULL, source VARCHAR NOT NULL, source_format VARCHAR,
    fingerprint VARCHAR, position BIGINT, line_number BIGINT, reason VARCHAR NOT NULL, detail VARCHAR,
    excerpt VARCHAR
);

-- How many rejects were forgotten with age, so that their totals never fall.
CREATE TABLE IF NOT EXISTS rejects_before (
    source VARCHAR, reason VARCHAR, rejects BIGINT NOT NULL, PRIMARY KEY (source, reason)
);
CREATE OR REPLACE VIEW reject_totals AS
SELECT source, reason, count(*) AS rejects FROM rejects GROUP BY ALL
UNION ALL FROM rejects_before;

-- Counters for Prometheus, live rows only; additive deltas. They survive retention.
CREATE TABLE IF NOT EXISTS live_counters (
    model VARCHAR, route VARCHAR, template VARCHAR, tenant VARCHAR,
    miss_requests BIGINT, partial_requests BIGINT, hit_requests BIGINT, unknown_requests BIGINT,
    prompt_tokens BIGINT, reported_prompt_tokens BIGINT, ineligible_prompt_tokens BIGINT,
    cached_tokens BIGINT, cached_device BIGINT, cached_host BIGINT, cached_disk BIGINT,
    cached_remote BIGINT
);
CREATE TABLE IF NOT EXISTS live_ttft (
    model VARCHAR, route VARCHAR, outcome VARCHAR, bucket INTEGER, requests BIGINT, seconds DOUBLE
);
-- Values a label may take on /metrics; others are folded into 'other'.
CREATE TABLE IF NOT EXISTS label_values (
    label VARCHAR, value VARCHAR, since TIMESTAMP, PRIMARY KEY (label, value)
);

-- Drops that last, as last judged (exporter.drops): since when, so that a restart does not forget it.
-- '' is a name that was not given or is not what the drop is about.
CREATE TABLE IF NOT EXISTS open_drops (
    basis VARCHAR NOT NULL, model VARCHAR NOT NULL, route VARCHAR NOT NULL,
    template VARCHAR NOT NULL, tenant VARCHAR NOT NULL,
    since TIMESTAMP NOT NULL, judged TIMESTAMP NOT NULL
);

-- What models cost, in USD per million tokens, as far as it is known: a model without a price has
-- no row. `provider` is NULL where rows name none. NULL in a price = not known. Prompts of more
-- than `tier_tokens` have other prices, which are not kept. `served_here`: an engine of the user's
-- own serves the model. Written by exporter.prices, which looks all of them up now and then.
CREATE TABLE IF NOT EXISTS model_prices (
    provider VARCHAR, model VARCHAR NOT NULL,
    input DOUBLE NOT NULL, output DOUBLE, cached_read DOUBLE,
    write_5m DOUBLE, write_1h DOUBLE, write_other DOUBLE,
    tier_tokens BIGINT,
    source VARCHAR NOT NULL, as_of TIMESTAMP NOT NULL, matched_name VARCHAR NOT NULL,
    note VARCHAR, served_here BOOLEAN NOT NULL
);

-- What others counted: a provider's usage report, or a gateway's daily tables (`reporter`). One row
-- per bucket of `bucket_seconds` from `day` on, and what it is grouped by. `prompt_tokens` is
-- inclusive; NULL = not reported. A bucket without a model and with zeros only: nothing was used.
-- `read_at` is when the report was made: a bucket that ends later was still open. It is compared
-- with requests and never added to them.
CREATE TABLE IF NOT EXISTS provider_usage (
    reporter VARCHAR NOT NULL,
    -- Which organization or database, where a reporter tells of several.
    account VARCHAR NOT NULL DEFAULT '',
    day TIMESTAMP NOT NULL, bucket_seconds BIGINT NOT NULL,
    provider VARCHAR NOT NULL, model VARCHAR, tenant VARCHAR,
    requests BIGINT, prompt_tokens BIGINT NOT NULL, cached_tokens BIGINT,
    cache_write_tokens BIGINT, output_tokens BIGINT, read_at TIMESTAMP NOT NULL
);

-- What KV-cache events told, by minute of the event, cache and tier; several rows may share a key,
-- so SUM counts. `replica` includes the data-parallel rank. Blocks are the engine's, of
-- `block_size` tokens. `resident_*` is what was held after the last event of the row, at `heard`.
-- `uncertain` = why that may be wrong (NULL = it is right). Histograms: bucket i holds
-- [1.08^i, 1.08^(i+1)) seconds, counts of blocks.
CREATE TABLE IF NOT EXISTS block_minutes (
    minute TIMESTAMP NOT NULL, heard TIMESTAMP NOT NULL,
    source VARCHAR NOT NULL, replica VARCHAR NOT NULL, model VARCHAR,
    tier VARCHAR NOT NULL, block_size INTEGER,
    stored_blocks BIGINT, evicted_blocks BIGINT, demoted_blocks BIGINT, promoted_blocks BIGINT,
    reset_blocks BIGINT,
    -- Of evicted and demoted ones: how many no request is known to have reused, and of how many
    -- that could be known (requests with chains were there to tell).
    never_reused_blocks BIGINT, reuse_known_blocks BIGINT,
    resident_blocks BIGINT, resident_tokens BIGINT, uncertain VARCHAR,
    lifetime MAP(INTEGER, BIGINT), idle MAP(INTEGER, BIGINT),
    reuse_gap MAP(INTEGER, BIGINT), evicted_reuse_gap MAP(INTEGER, BIGINT)
);

-- Every time a cache lost all it held: reason is restart, clear, sleep or lost_events.
CREATE TABLE IF NOT EXISTS block_resets (
    ts TIMESTAMP NOT NULL, source VARCHAR NOT NULL, replica VARCHAR NOT NULL, model VARCHAR,
    tier VARCHAR NOT NULL, reason VARCHAR NOT NULL, blocks BIGINT NOT NULL
);

-- The last state of every stream of events: a row for each (source, replica, model).
CREATE TABLE IF NOT EXISTS block_streams (
    source VARCHAR NOT NULL, replica VARCHAR NOT NULL, model VARCHAR,
    first_heard TIMESTAMP, last_heard TIMESTAMP,
    -- Of the batch applied last: its number, and the latest time in a batch by the publisher's clock.
    last_sequence UBIGINT, last_batch_ts TIMESTAMP,
    batches BIGINT, missed_batches BIGINT, replayed_batches BIGINT, restarts BIGINT,
    unreadable_batches BIGINT, connected BOOLEAN, uncertain VARCHAR
);

-- What was resident at `as_of` (one snapshot, replaced as a whole): the prefixes that hold most.
-- `prefix` is the chain hash of the prefix's last block, `prefix_tokens` its length from the start
-- of the prompt, `blocks` what it and everything that only continues it hold, over all replicas.
CREATE TABLE IF NOT EXISTS resident_prefixes (
    as_of TIMESTAMP NOT NULL, model VARCHAR, tier VARCHAR NOT NULL,
    prefix UBIGINT NOT NULL, hash_key_id VARCHAR, prefix_tokens BIGINT NOT NULL,
    blocks BIGINT NOT NULL, tokens BIGINT NOT NULL, replicas BIGINT NOT NULL,
    requests BIGINT, template VARCHAR, tenant VARCHAR, last_used TIMESTAMP
);

-- Copies over the fleet, by minute: how many different blocks are resident, how many in all; and
-- for pairs of replicas how many both hold (replica_b NULL = the fleet's row).
CREATE TABLE IF NOT EXISTS block_copies (
    minute TIMESTAMP NOT NULL, model VARCHAR, tier VARCHAR NOT NULL,
    replica_a VARCHAR, replica_b VARCHAR,
    unique_blocks BIGINT NOT NULL, resident_blocks BIGINT NOT NULL, shared_blocks BIGINT
);

-- What the KV of a model weighs, from the settings (exporter.geometry); written anew at start.
CREATE TABLE IF NOT EXISTS kv_geometry (
    model VARCHAR PRIMARY KEY, bytes_per_token BIGINT NOT NULL, source VARCHAR NOT NULL
);

-- Why tokens missed (exporter.causes): sums by minute and hour of requests whose minute is sealed,
-- two minutes late; each cause is named once and never revised. Additive like the other roll-ups,
-- but for `remembered_seconds`: how far back it was known what had been seen, of several rows the
-- least. prompt_tokens = cached_tokens + all causes: requests with a cached count and a chain. Beside
-- them those without a count (unreported), with a count and no chain (chainless), and those that
-- came when their minute was sealed (late). The four after `unexplained_tokens` are parts: of reset,
-- rounding, new and of cached_tokens.
CREATE TABLE IF NOT EXISTS cause_minutes (
    minute TIMESTAMP NOT NULL, model VARCHAR, replica VARCHAR, route VARCHAR,
    requests BIGINT, prompt_tokens BIGINT, cached_tokens BIGINT,
    unserved_tokens BIGINT, evicted_tokens BIGINT, expired_tokens BIGINT, reset_tokens BIGINT,
    routed_tokens BIGINT, concurrent_tokens BIGINT, isolated_tokens BIGINT,
    redeployed_tokens BIGINT, layout_tokens BIGINT, new_tokens BIGINT, rounding_tokens BIGINT,
    ineligible_tokens BIGINT, unexplained_tokens BIGINT,
    reset_replica_gone_tokens BIGINT, rounding_split_tokens BIGINT, new_warming_tokens BIGINT,
    warm_before_log_tokens BIGINT,
    unreported_requests BIGINT, unreported_prompt_tokens BIGINT,
    chainless_requests BIGINT, chainless_prompt_tokens BIGINT,
    late_requests BIGINT, late_prompt_tokens BIGINT,
    remembered_seconds BIGINT
);
CREATE TABLE IF NOT EXISTS cause_hours (
    hour TIMESTAMP NOT NULL, model VARCHAR, route VARCHAR, template VARCHAR, tenant VARCHAR,
    requests BIGINT, prompt_tokens BIGINT, cached_tokens BIGINT,
    unserved_tokens BIGINT, evicted_tokens BIGINT, expired_tokens BIGINT, reset_tokens BIGINT,
    routed_tokens BIGINT, concurrent_tokens BIGINT, isolated_tokens BIGINT,
    redeployed_tokens BIGINT, layout_tokens BIGINT, new_tokens BIGINT, rounding_tokens BIGINT,
    ineligible_tokens BIGINT, unexplained_tokens BIGINT,
    reset_replica_gone_tokens BIGINT, rounding_split_tokens BIGINT, new_warming_tokens BIGINT,
    warm_before_log_tokens BIGINT,
    unreported_requests BIGINT, unreported_prompt_tokens BIGINT,
    chainless_requests BIGINT, chainless_prompt_tokens BIGINT,
    late_requests BIGINT, late_prompt_tokens BIGINT,
    remembered_seconds BIGINT
);
-- How far causes were named: the minute up to which rows are sealed, the last batch of rows whose
-- late ones were counted, and what of the state is not in `cause_changes`. One row.
CREATE TABLE IF NOT EXISTS cause_state (
    sealed TIMESTAMP NOT NULL, batch BIGINT NOT NULL, state BLOB NOT NULL
);
-- What every sealed minute added to the memory of what was seen: keyed hashes as arrays, no tokens.
-- Taken in again in order when a store is opened; a part's older `generation` goes as a whole.
CREATE TABLE IF NOT EXISTS cause_changes (
    part VARCHAR NOT NULL, generation BIGINT NOT NULL,
    minute TIMESTAMP NOT NULL, batch BIGINT NOT NULL, change BLOB NOT NULL
);
-- Rows that corrected or joined others after these were counted: they are not counted once more.
CREATE TABLE IF NOT EXISTS cause_corrected (batch BIGINT NOT NULL, position BIGINT NOT NULL);
-- Up to where causes are being named: rows that take the place of such rows are noted above, too.
CREATE TABLE IF NOT EXISTS cause_reading (until TIMESTAMP NOT NULL, batch BIGINT NOT NULL);
-- Missed tokens for Prometheus, of live rows; additive deltas like live_counters.
CREATE TABLE IF NOT EXISTS live_missed (
    model VARCHAR, route VARCHAR, template VARCHAR, tenant VARCHAR, cause VARCHAR, tokens BIGINT
);

-- What was found in the layout of templates from chains of rows of a window (exporter.layout_found),
-- replaced as a whole. NULL in `model` or `template`: rows without. `template_requests`, with
-- `prompt_tokens`, are those that were looked at, `requests` those that have it. Tokens from
-- `from_token` to before `until_token`. Times: `since`, `warm_again_by` of what changed once.
CREATE TABLE IF NOT EXISTS layout_findings (
    window_since TIMESTAMP NOT NULL, window_until TIMESTAMP NOT NULL,
    model VARCHAR, template VARCHAR, segment VARCHAR NOT NULL,
    kind VARCHAR NOT NULL, frequency VARCHAR NOT NULL,
    from_token BIGINT NOT NULL, until_token BIGINT NOT NULL,
    requests BIGINT NOT NULL, template_requests BIGINT NOT NULL, prompt_tokens BIGINT NOT NULL,
    lost_tokens BIGINT NOT NULL, gain_tokens BIGINT NOT NULL,
    since TIMESTAMP, warm_again_by TIMESTAMP, advice VARCHAR NOT NULL, command VARCHAR NOT NULL
);
-- The same requests by ranges of tokens: how many have them, have the most frequent beginning up to
-- there, one that others have too, and content that others have at any place.
CREATE TABLE IF NOT EXISTS template_ranges (
    window_since TIMESTAMP NOT NULL, window_until TIMESTAMP NOT NULL,
    model VARCHAR, template VARCHAR, template_requests BIGINT NOT NULL,
    from_token BIGINT NOT NULL, until_token BIGINT NOT NULL, requests BIGINT NOT NULL,
    same_requests BIGINT NOT NULL, reuse_requests BIGINT NOT NULL, content_requests BIGINT NOT NULL
);

-- Reuse across scopes by sealed minute (exporter.isolation.crossed): what requests reused that only
-- another scope had computed. `found` rows are of requests that did, by their scope and tenant; the
-- others are of those that were checked and did not, and of those of which nobody can tell. NULL: not
-- given.
CREATE TABLE IF NOT EXISTS cross_scope_minutes (
    minute TIMESTAMP NOT NULL, model VARCHAR, replica VARCHAR, found BOOLEAN NOT NULL,
    scope VARCHAR, tenant VARCHAR,
    checked_requests BIGINT NOT NULL, checked_cached_tokens BIGINT NOT NULL,
    reused_requests BIGINT NOT NULL, reused_at_least_tokens BIGINT NOT NULL,
    reused_at_most_tokens BIGINT NOT NULL,
    cannot_tell_requests BIGINT NOT NULL, cannot_tell_tokens BIGINT NOT NULL
);
-- The counter of live rows on /metrics. A replica is there once it was checked.
CREATE TABLE IF NOT EXISTS live_crossed (
    model VARCHAR, replica VARCHAR, tokens BIGINT NOT NULL, PRIMARY KEY (model, replica)
);
-- What scopes cost in rows of a window (exporter.isolation.audit), replaced as a whole. Scopes are
-- keyed hashes, '' is none; tenants are those that use them.
CREATE TABLE IF NOT EXISTS scope_pairs (
    window_since TIMESTAMP NOT NULL, window_until TIMESTAMP NOT NULL,
    model VARCHAR NOT NULL, replica VARCHAR NOT NULL,
    scope VARCHAR NOT NULL, tenants VARCHAR NOT NULL,
    other_scope VARCHAR NOT NULL, other_tenants VARCHAR NOT NULL,
    isolated_tokens BIGINT NOT NULL, isolated_requests BIGINT NOT NULL,
    merged_tokens BIGINT NOT NULL, merged_requests BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS public_prefixes (
    window_since TIMESTAMP NOT NULL, window_until TIMESTAMP NOT NULL,
    model VARCHAR NOT NULL, prefix VARCHAR NOT NULL, tokens BIGINT NOT NULL,
    callers BIGINT NOT NULL, scopes BIGINT NOT NULL, requests BIGINT NOT NULL,
    won_tokens BIGINT NOT NULL, first_ts TIMESTAMP NOT NULL, last_ts TIMESTAMP NOT NULL
);
