/*
name: block_streams
question: Do the streams of KV-cache events arrive whole?
grain: one row per source, replica and model; trouble first
filters: [model, replica]
columns:
  source: {type: VARCHAR, unit: name, meaning: "Configured stream name."}
  replica: {type: VARCHAR, unit: name, meaning: "Replica, with its data-parallel rank."}
  model: {type: VARCHAR, unit: name, meaning: "Model, '' if not given."}
  connected: {type: BOOLEAN, unit: flag, meaning: "Is it heard live; false for recorded streams."}
  uncertain: {type: VARCHAR, unit: text, meaning: "Why what it tells may be wrong until the cache is replayed or cleared; NULL = it is right."}
  scraped: {type: BOOLEAN, unit: flag, meaning: "Does a metrics page tell of a replica of this name? If not, running memory is unknown and memory cannot be split: give both the same name."}
  first_heard: {type: TIMESTAMP, unit: time, meaning: "First event."}
  last_heard: {type: TIMESTAMP, unit: time, meaning: "Latest event. A cache at rest is silent."}
  batches: {type: BIGINT, unit: count, meaning: "Batches of events taken in."}
  missed_batches: {type: BIGINT, unit: count, meaning: "Batches that never came, by their numbers."}
  missed_ratio: {type: DOUBLE, unit: ratio, meaning: "missed / (taken in + missed)."}
  replayed_batches: {type: BIGINT, unit: count, meaning: "Batches asked for once more and received."}
  unreadable_batches: {type: BIGINT, unit: count, meaning: "Batches that are no events we know."}
  restarts: {type: BIGINT, unit: count, meaning: "Times its numbering began again: the engine was restarted."}
*/
SELECT
    source, replica, coalesce(model, told_model, '') AS model,
    coalesce(connected, false) AS connected,
    uncertain,
    replica IN (SELECT replica FROM engine_own) AS scraped,
    first_heard, last_heard, batches, missed_batches,
    ratio(missed_batches, batches + missed_batches) AS missed_ratio,
    replayed_batches, unreadable_batches, restarts
FROM block_streams
LEFT JOIN told_models USING (replica)
WHERE
    matches(coalesce(model, told_model, ''), getvariable('model'))
    AND matches(replica, getvariable('replica'))
ORDER BY uncertain IS NULL, missed_batches DESC NULLS LAST, source, replica;
